"""BackendTLSPolicy: which policy applies to a backend, the TLS settings it gives, and its status."""
