"""Annotations of other Ingress controllers, translated if a stack enables it, and only if that is exact."""
