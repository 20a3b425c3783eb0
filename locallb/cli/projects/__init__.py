"""Projects as the command line finds and makes them: around here, this user's own, new ones."""
