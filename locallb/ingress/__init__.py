"""Ingresses: which are ours, and what those that share an address serve there. Pure: no cluster is asked."""
