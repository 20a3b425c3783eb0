"""Traffic figures of a stack's proxies, read from Envoy's own counters on demand.

`figures` are counts and how they add up, `answers` parses them from Envoy's responses, `table` assigns them to
Services, and `ask` sends the queries. Without a reader nothing is queried, kept or added up. Not here: whether a
Service serves (`planning.status`).
"""
