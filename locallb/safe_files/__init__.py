"""Files for the engine and all others: read within bounds, written whole, locked, and whom their paths belong to."""
