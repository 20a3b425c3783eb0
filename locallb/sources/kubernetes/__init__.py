"""The source `kubernetes`: a running cluster."""
