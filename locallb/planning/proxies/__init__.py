"""Assignment of Services to proxies, own, shared or spare, within the host's capacity. Not here: addresses."""
