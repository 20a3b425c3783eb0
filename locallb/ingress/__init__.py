"""Ingresses: which are ours, and what those on a shared address serve. Pure: no requests."""
