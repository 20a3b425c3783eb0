"""Threads that cannot end unseen, and counters that any thread may use."""
