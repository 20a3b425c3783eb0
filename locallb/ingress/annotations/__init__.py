"""Annotations of other Ingress controllers, in our words: where a stack asks for it, and only what is exact.

A value is anybody's: it is bounded and checked, and what can't be kept is told. Where passing it over would serve
something else than was meant, the Ingress is answered 503 until it is corrected. Pure.
"""
