"""The pure part: from what was read to what shall be. No clock, no file, no environment, no log, no framework."""
