"""What may be typed: commands, their options and values. Not here: what was typed (`arguments`)."""
