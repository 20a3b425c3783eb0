"""What a host allows, lacks and can be given: pure decisions behind `locallb doctor` and `locallb host`."""
