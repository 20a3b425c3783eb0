"""What commands show of a stack and of a run: tables, trees, progress, outcomes. Not here: the commands themselves."""
