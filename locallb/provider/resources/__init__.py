"""The resource types of our provider, a module each."""
