"""What requests to an API may cost, and when they may be sent."""
