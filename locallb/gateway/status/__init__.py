"""What statuses of Gateway API's objects and of Ingresses say, what they said, and the patch from one to the other."""
