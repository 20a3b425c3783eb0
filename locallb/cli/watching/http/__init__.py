"""The small HTTP server for metrics, health and the live page: sockets, messages, and the check of the Host header.

Not here: the content of pages (`metrics`, `supervision`, `cli.page`).
"""
