"""Podman's containers as a runtime: Docker's, asked by the same API, but for what is different."""
