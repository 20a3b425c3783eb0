"""Frozen types that every room shares: identities, Kubernetes' objects, the snapshot, what a proxy serves."""
