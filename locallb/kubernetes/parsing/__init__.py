"""From documents and objects of Kubernetes to the types of `model`. Total and pure; not here: requests (`api`)."""
