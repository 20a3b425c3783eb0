"""Discovery of optional kinds: which ones a cluster has, and what their absence means."""
