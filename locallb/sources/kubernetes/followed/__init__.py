"""What a cluster has, followed: kinds that it always has or may have, and single objects by their names."""
