"""Gateway API: objects, attachment of routes, and the configuration and status of each Gateway. Pure: no requests."""
