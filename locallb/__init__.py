"""local-lb: an address of its own for every Kubernetes Service of type LoadBalancer on a local cluster."""

__version__ = "0.1.0"
