"""Routes of this host to the pods of clusters: which are wanted, and which conflict with other networks.

Pure. Not here: HTTP routes (`gateway.routes`), and changing the host's table (`host`).
"""
