"""Statuses for objects in clusters, made from a complete plan: Gateways, routes, Ingresses, and withdrawn Services.

Pure; nothing here changes what is served. Not here: the content of each status (`gateway.status`, `ingress.statuses`),
the table for the user (`planning.status`), and requests.
"""
