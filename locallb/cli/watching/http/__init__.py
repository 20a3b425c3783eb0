"""The small HTTP server for metrics, health and the live page: sockets, messages, and which Host is answered.

Not here: what any page says (`metrics`, `supervision`, `cli.page`).
"""
