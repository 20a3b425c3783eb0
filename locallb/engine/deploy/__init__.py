"""The deployment: goals to steps, in order; deletions, replacements, refreshes."""
