package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	codegen "github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// nodejs runs programs by the commands that the program's own copy of the SDK has.
type nodejs struct{}

// sdk finds a command of the SDK that node finds for a directory.
func sdk(directory, command string) (string, error) {
	for above := directory; ; above = filepath.Dir(above) {
		path := filepath.Join(above, "node_modules", "@pulumi", "pulumi", "cmd", command)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if above == filepath.Dir(above) {
			return "", fmt.Errorf("@pulumi/pulumi isn't installed for %s: run npm install there", directory)
		}
	}
}

func node(arguments ...string) *exec.Cmd {
	command := exec.Command("node", arguments...)
	command.Env = []string{"PULUMI_NODEJS_TYPESCRIPT=true"}
	return command
}

func npm(arguments ...string) *exec.Cmd {
	return exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund"}, arguments...)...)
}

func (nodejs) program(request *pulumirpc.RunRequest, engine string) (*exec.Cmd, error) {
	info := request.GetInfo()
	command, err := sdk(info.GetProgramDirectory(), "run")
	if err != nil {
		return nil, err
	}
	arguments := []string{
		command,
		"--monitor=" + request.GetMonitorAddress(),
		"--engine=" + engine,
		"--project=" + request.GetProject(),
		"--stack=" + request.GetStack(),
		"--organization=" + request.GetOrganization(),
		"--root-directory=" + info.GetRootDirectory(),
		"--pwd=" + request.GetPwd(),
		"--parallel=" + strconv.Itoa(int(request.GetParallel())),
	}
	if request.GetDryRun() {
		arguments = append(arguments, "--dry-run")
	}
	return node(append(append(arguments, info.GetEntryPoint()), request.GetArgs()...)...), nil
}

func (nodejs) plugin(request *pulumirpc.RunPluginRequest) (*exec.Cmd, error) {
	directory := request.GetInfo().GetProgramDirectory()
	if request.GetKind() == "analyzer" {
		command, err := sdk(directory, "run-policy-pack")
		if err != nil {
			return nil, err
		}
		return node(append(append([]string{command}, request.GetArgs()...), directory)...), nil
	}
	command, err := sdk(directory, "run-plugin")
	if err != nil {
		return nil, err
	}
	return node(append([]string{command, directory}, request.GetArgs()...)...), nil
}

func (nodejs) install(*pulumirpc.ProgramInfo) ([]*exec.Cmd, error) { return []*exec.Cmd{npm()}, nil }

func (nodejs) link(_ *pulumirpc.ProgramInfo, folder string) (*exec.Cmd, error) {
	return npm("file:" + folder), nil
}

func (nodejs) generate(request *pulumirpc.GeneratePackageRequest) (map[string][]byte, error) {
	described, loader, err := bound(request)
	if err != nil {
		return nil, err
	}
	return codegen.GeneratePackage(
		"pulumi-language-nodejs", described, request.GetExtraFiles(), request.GetLocalDependencies(), request.GetLocal(),
		loader,
	)
}
