"""The planner: from a snapshot to the desired state. Pure: no clock, file, environment, log or framework."""
