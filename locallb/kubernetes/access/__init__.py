"""How an API server is reached: kubeconfigs, credentials, certificates. Not here: what is asked of it."""
