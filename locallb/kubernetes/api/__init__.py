"""The only code that talks to Kubernetes APIs: kubeconfigs, requests, watches, leases."""
