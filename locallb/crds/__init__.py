"""The CustomResourceDefinitions of Gateway API, shipped for `locallb gateway install-crds`, and the missing ones.

`gateway-api.json.xz` holds both channels of one release as they were published at sigs.k8s.io/gateway-api, by the
Kubernetes authors, under the Apache License 2.0 (LICENSE has its text): unchanged, but written as JSON and compressed.
`python -m tests.conformance.carried` makes it from the Go module that the conformance tier pins. Not here: requests.
"""
