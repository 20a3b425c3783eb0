"""Connections to pods through the API server: one process for each cluster that this host can't reach otherwise."""
