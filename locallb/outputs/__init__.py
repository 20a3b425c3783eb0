"""What the world is told of addresses: an output each, with what it tells, when, and by which resource."""
