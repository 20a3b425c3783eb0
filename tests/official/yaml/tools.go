//go:build tools

// Package tools names the program that is built, so that go.mod keeps what it needs.
package tools

import _ "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"
