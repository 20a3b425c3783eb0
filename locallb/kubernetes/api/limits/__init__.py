"""Limits of the cost and rate of requests to an API."""
