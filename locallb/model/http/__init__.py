"""HTTP and TLS as a proxy serves them, independent of Envoy. Pure. Not here: L4 (`serving`), Envoy's configuration."""
