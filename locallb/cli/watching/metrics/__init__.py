"""What Prometheus is told: of the loop, and of what flows through Services. Not here: who asks (`http`)."""
