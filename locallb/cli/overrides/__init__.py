"""Commands that order something for Services: faults, drains."""
