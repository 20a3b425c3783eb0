"""The frontend `Service` of type LoadBalancer (core/v1)."""
