//go:build tools

// Keeps what `go test -c` needs in go.mod: upstream's end-to-end tests; and kubectl.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/test/e2e"
)
