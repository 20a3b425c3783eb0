"""Access to an API server: kubeconfigs, credentials, certificates. Not here: requests."""
