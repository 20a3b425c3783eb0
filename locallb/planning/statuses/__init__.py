"""What objects in clusters are told of a plan: Gateways, routes, Ingresses, and everybody once the stack is withdrawn.

Pure, made from a plan that is complete: nothing decided here changes who is served. Not here: what each status says
(`gateway.status`, `ingress.statuses`), what the user is told (`planning.status`), and requests.
"""
