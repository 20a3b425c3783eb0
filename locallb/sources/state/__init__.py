"""Contents of this stack's state: its home and the resources it holds. Not here: owners of addresses (`ledger`)."""
