"""The output `names`: DNS names in zones with servers that take updates (RFC 2136)."""
