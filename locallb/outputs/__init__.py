"""Outputs: where a load balancer's addresses are published (status, events, DNS), each by a resource of its own."""
