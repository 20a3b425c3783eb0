"""Leftovers of a lost state, on this host and in live clusters: found and removed by `gc`."""
