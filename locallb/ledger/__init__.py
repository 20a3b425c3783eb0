"""The ledger: which address of this host belongs to whom, for every stack and user at once."""
