"""The source `kind`: the clusters of kind on this host, each followed as a running cluster."""
