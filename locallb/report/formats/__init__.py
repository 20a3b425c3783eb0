"""A report in each of its formats, and the words that they share. Not here: what changes, and what matters of it."""
