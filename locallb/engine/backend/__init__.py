"""The file backend of one stack: its files, locks, backups, recovery, and the store of all that.

The content of the files is in `state`.
"""
