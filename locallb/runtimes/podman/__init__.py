"""The runtime `podman`: Docker's, by the same API, with the differences."""
