"""The resource types of our provider."""
