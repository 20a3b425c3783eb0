"""The runtime `docker`: an Envoy in a container, declared with pulumi-docker. Docker's API is here for others, too."""
