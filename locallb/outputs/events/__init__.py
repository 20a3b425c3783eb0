"""The output `events`: what is new, as events of the object."""
