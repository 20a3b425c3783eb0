"""This host's addresses, routes and rules as data, and ranges. Pure; not here: asking for them (`host`)."""
