"""Names: who gets which, and what is written into which zone. `names`, `zones` and `records` are pure."""
