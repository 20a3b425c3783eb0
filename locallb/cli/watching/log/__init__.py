"""What the log says of events, and its forms. Not here: who writes it (`reporting`), and the live view (`screen`)."""
