"""Kubernetes: objects to the model, status patches and events. Pure, but for `api`."""
