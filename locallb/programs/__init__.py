"""Child processes that are run to their end, and Git, which is one. Not here: programs that outlive us."""
