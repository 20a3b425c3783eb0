"""The commands, each a short story: open, ask, run, tell."""
