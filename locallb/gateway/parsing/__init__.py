"""Parses Gateway API objects, field by field. Pure and total: mistakes are reported, never raised."""
