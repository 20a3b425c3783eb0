"""Listeners of a Gateway: conflicts, certificates, allowed routes, limits."""
