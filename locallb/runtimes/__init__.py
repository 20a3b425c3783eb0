"""Runtimes: how an Envoy is run, as a process of this host or in a container; start, end and drain."""
