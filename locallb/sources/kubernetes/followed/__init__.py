"""Informers: a cluster's objects followed by watches, by kind or by name."""
