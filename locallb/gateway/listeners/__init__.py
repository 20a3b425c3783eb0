"""What each listener of a Gateway may serve: which are distinct, their certificates, who is let in, how much."""
