"""Annotations of other Ingress controllers, translated where a stack asks for it, and only where that is exact."""
