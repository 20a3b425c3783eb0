"""What the state of this stack says: where it belongs and what it holds. Not here: whose an address is (`ledger`)."""
