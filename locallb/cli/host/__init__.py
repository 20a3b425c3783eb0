"""Commands about this host: what it allows and is given, whom its programs believe, an image of its Envoy."""
