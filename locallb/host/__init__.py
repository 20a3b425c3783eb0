"""This host: its limits, facts and changes, for `locallb doctor` and `locallb host`."""
