//go:build tools

// Keeps what the tier of conformance builds in go.mod: the suite of Gateway API, and the servers that it sends requests to.
package tools

import (
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
