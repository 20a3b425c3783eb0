"""Backends of a port: Nodes and endpoints. Pure."""
