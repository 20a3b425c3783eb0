"""The output `names`: DNS names in zones whose servers take updates (RFC 2136)."""
