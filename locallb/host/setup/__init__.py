"""What `locallb host setup` changes of this host: which steps (pure), and carrying them out."""
