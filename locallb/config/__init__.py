"""The stack's configuration: its keys, their types, and how each is read. Pure: the values come as arguments."""
