"""Allocation of addresses to Services: pools, holders, allocation. Pure."""
