package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	codegen "github.com/pulumi/pulumi/pkg/v3/codegen/python"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// python runs programs by the SDK's own script, which lies beside the host.
type python struct{}

const script = "pulumi-language-python-exec"

// environment returns the directory of the program's virtual environment; empty: there is none, and python3 is used.
func environment(info *pulumirpc.ProgramInfo) string {
	directory, _ := info.GetOptions().AsMap()["virtualenv"].(string)
	if directory != "" && !filepath.IsAbs(directory) {
		directory = filepath.Join(info.GetRootDirectory(), directory)
	}
	return directory
}

func interpreter(info *pulumirpc.ProgramInfo) (string, error) {
	directory := environment(info)
	if directory == "" {
		return "python3", nil
	}
	path := filepath.Join(directory, "bin", "python")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the virtual environment %s of Pulumi.yaml has no Python: %w", directory, err)
	}
	return path, nil
}

func (python) program(request *pulumirpc.RunRequest, engine string) (*exec.Cmd, error) {
	found, err := interpreter(request.GetInfo())
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"-u", filepath.Join(filepath.Dir(self), script),
		"--monitor", request.GetMonitorAddress(),
		"--engine", engine,
		"--project", request.GetProject(),
		"--stack", request.GetStack(),
		"--organization", request.GetOrganization(),
		"--root_directory", request.GetInfo().GetRootDirectory(),
		"--pwd", request.GetPwd(),
		"--parallel", strconv.Itoa(int(request.GetParallel())),
		"--dry_run", strconv.FormatBool(request.GetDryRun()),
		filepath.Join(request.GetInfo().GetProgramDirectory(), request.GetInfo().GetEntryPoint()),
	}
	return exec.Command(found, append(arguments, request.GetArgs()...)...), nil
}

func (python) plugin(request *pulumirpc.RunPluginRequest) (*exec.Cmd, error) {
	found, err := interpreter(request.GetInfo())
	if err != nil {
		return nil, err
	}
	directory := request.GetInfo().GetProgramDirectory()
	if request.GetKind() == "analyzer" {
		arguments := append([]string{"-u", "-m", "pulumi.policy"}, request.GetArgs()...)
		return exec.Command(found, append(arguments, directory)...), nil
	}
	return exec.Command(found, append([]string{"-u", directory}, request.GetArgs()...)...), nil
}

func (python) install(info *pulumirpc.ProgramInfo) ([]*exec.Cmd, error) {
	var commands []*exec.Cmd
	found := "python3"
	if directory := environment(info); directory != "" {
		found = filepath.Join(directory, "bin", "python")
		if _, err := os.Stat(found); os.IsNotExist(err) {
			commands = append(commands, exec.Command("python3", "-m", "venv", directory))
		}
	}
	wanted := filepath.Join(info.GetProgramDirectory(), "requirements.txt")
	if _, err := os.Stat(wanted); err == nil {
		commands = append(commands, exec.Command(found, "-m", "pip", "install", "--quiet", "--requirement", wanted))
	}
	return commands, nil
}

func (python) link(info *pulumirpc.ProgramInfo, folder string) (*exec.Cmd, error) {
	found, err := interpreter(info)
	if err != nil {
		return nil, err
	}
	return exec.Command(found, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", folder), nil
}

func (python) generate(request *pulumirpc.GeneratePackageRequest) (map[string][]byte, error) {
	described, loader, err := bound(request)
	if err != nil {
		return nil, err
	}
	return codegen.GeneratePackage("pulumi-language-python", described, request.GetExtraFiles(), loader)
}
