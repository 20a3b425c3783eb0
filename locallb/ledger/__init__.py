"""The ledger: the owner of each address of this host, for every stack and user at once."""
