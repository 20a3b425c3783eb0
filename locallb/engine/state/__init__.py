"""A stack's state: resources, snapshot, and the texts that keep it: state file, journal."""
