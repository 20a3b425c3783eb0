"""The commands. Each has the same steps: open the stack, ask for confirmation, run, report."""
