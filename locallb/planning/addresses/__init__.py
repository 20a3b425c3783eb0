"""Which address each Service gets: pools, holders, allocation. Pure."""
