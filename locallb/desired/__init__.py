"""The desired state of a stack: the resources of a plan, as data. Decides and changes nothing."""
