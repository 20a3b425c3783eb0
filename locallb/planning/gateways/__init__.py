"""Planning of Gateways and Ingresses: which ones are served, and the listeners and backends of their ports.

Pure, and separate because Services don't need it. Not here: Gateway API's and Ingresses' own rules (`gateway`,
`ingress`), and their statuses (`planning.statuses`).
"""
