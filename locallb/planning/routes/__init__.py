"""Routes of this host to the pods of clusters: which are wanted, and which of them would be in somebody's way.

Pure. Not here: routes of HTTP (`gateway.routes`), and making any (`host`).
"""
