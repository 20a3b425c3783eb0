"""Frontends: kinds of objects that get addresses and listeners, how each is read, and how its status is written."""
