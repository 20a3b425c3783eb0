"""The source `gardener`: a seed, and the shoots that it has."""
