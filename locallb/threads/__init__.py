"""Supervised threads, and counters that any thread may use."""
