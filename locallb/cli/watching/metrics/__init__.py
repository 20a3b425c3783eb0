"""Metrics for Prometheus: of the loop, and of traffic through Services. Not here: the HTTP server (`http`)."""
