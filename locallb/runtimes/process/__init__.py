"""The runtime `process`: an Envoy of this host, started so that it outlives us."""
