"""DNS: which name goes to which load balancer, and the updates of zones. `names`, `zones` and `records` are pure."""
