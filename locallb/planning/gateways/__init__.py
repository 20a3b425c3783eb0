"""Gateways and Ingresses among what is planned: who they are, and which listeners and backends their ports come to.

Pure, and apart because a Service needs none of it. Not here: Gateway API's and Ingresses' own rules (`gateway`,
`ingress`), and what they are told (`planning.statuses`).
"""
