//go:build tools

// Package tools names the program that is built, so that go.mod keeps what it needs.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
