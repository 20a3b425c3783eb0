"""TLS to the backends of routes: which BackendTLSPolicy is meant, what it comes to, what its status says."""
