"""A stack's state: resources, snapshot, state file, journal, locks."""
