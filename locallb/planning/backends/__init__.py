"""Where the connections of a port may go: Nodes and endpoints. Pure."""
