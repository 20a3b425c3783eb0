"""Files that another user may have written or replaced: reading them within bounds, and whom their path belongs to."""
