"""Files of this host: atomic writes, watched directories, and the places where local-lb keeps things."""
