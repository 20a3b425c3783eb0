"""The command line's grammar: commands, options and values. Not here: parsed arguments (`arguments`)."""
