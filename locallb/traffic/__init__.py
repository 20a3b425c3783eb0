"""Traffic figures of a stack's proxies, read from Envoy's own counters when somebody asks.

`figures` are counts and how they add up, `answers` reads them from what Envoy says, `table` says whose they are, and
`ask` asks. Nobody asks, keeps or adds up while nobody looks. Not here: whether a Service serves (`planning.status`).
"""
