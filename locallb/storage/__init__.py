"""Files of this host, with errors in our words; watched directories; and where local-lb keeps things."""
