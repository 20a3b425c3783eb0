"""What a lost state left behind, on this host and in live clusters: found and removed for `gc`."""
