"""Files of this host: whole files, directories that are watched, where local-lb keeps things."""
