"""Kinds of objects that get addresses and listeners: how each is read, and how it is told what it got."""
