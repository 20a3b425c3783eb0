"""The output `events`: news as Kubernetes events of the object."""
