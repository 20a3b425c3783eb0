"""Traffic figures of a stack's proxies, read from Envoy's own counters on demand.

`reading` sends the queries and takes the logs; `figures` parses Envoy's responses, adds counts up, and assigns them to
Services. Without a reader nothing is queried, kept or added up. Not here: whether a
Service serves (`planning.service_rows`).
"""
