"""One stack's state in a file backend: its places, locks, backups, what an earlier run left, and the store of all that.

What is in the files is `state`'s.
"""
