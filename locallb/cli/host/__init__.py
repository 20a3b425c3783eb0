"""Commands about this host: what it allows, how it is set up, trust in our authority, an image of its Envoy."""
