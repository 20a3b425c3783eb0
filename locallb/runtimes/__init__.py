"""What Envoy runs in: processes of this host and Docker containers; their start, end and drain."""
