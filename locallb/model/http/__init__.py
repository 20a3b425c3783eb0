"""What a proxy serves by HTTP and TLS, in our words. Pure; not here: L4 (`serving`), Envoy's words."""
