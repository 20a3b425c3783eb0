"""Commands that order something for Services for a while: faults."""
