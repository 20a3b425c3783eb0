"""Parses a stack's keys into settings, with a sentence for each mistake. Pure."""
