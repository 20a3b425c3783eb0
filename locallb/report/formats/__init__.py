"""The formats of a report, and the wording that they share. Not here: what changes, and what of it matters."""
