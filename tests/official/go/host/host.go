package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// shown is the exit code of a program that has told its user what is wrong.
const shown = 32

// version is Pulumi's, as the build sets it.
var version string

// host answers the command line. What it doesn't implement here is answered as unimplemented, which the command line
// says in its error.
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	language language
	engine   string
}

func (h *host) Handshake(
	context.Context, *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version}, nil
}

func (h *host) GetRequiredPackages(
	context.Context, *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

func (h *host) RuntimeOptionsPrompts(
	context.Context, *pulumirpc.RuntimeOptionsRequest,
) (*pulumirpc.RuntimeOptionsResponse, error) {
	return &pulumirpc.RuntimeOptionsResponse{}, nil
}

func (h *host) Template(context.Context, *pulumirpc.TemplateRequest) (*pulumirpc.TemplateResponse, error) {
	return &pulumirpc.TemplateResponse{}, nil
}

func (h *host) About(context.Context, *pulumirpc.AboutRequest) (*pulumirpc.AboutResponse, error) {
	return &pulumirpc.AboutResponse{}, nil
}

func (h *host) GetProgramDependencies(
	context.Context, *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	return &pulumirpc.GetProgramDependenciesResponse{}, nil
}

func (h *host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Run runs a program, whose output is the host's: the command line shows it.
func (h *host) Run(ctx context.Context, request *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	command, err := h.language.program(request, h.engine)
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	config, secret := request.GetConfig(), request.GetConfigSecretKeys()
	if config == nil { // an empty map arrives as none, which JSON has as null
		config = map[string]string{}
	}
	if secret == nil {
		secret = []string{}
	}
	values, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	keys, err := json.Marshal(secret)
	if err != nil {
		return nil, err
	}
	command.Dir = request.GetPwd()
	command.Env = append(append(os.Environ(), command.Env...), "PULUMI_CONFIG="+string(values), "PULUMI_CONFIG_SECRET_KEYS="+string(keys))
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	code, err := run(ctx, command)
	switch {
	case err != nil:
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	case code == shown:
		return &pulumirpc.RunResponse{Bail: true}, nil
	case code != 0:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("Program exited with non-zero exit code: %d", code)}, nil
	}
	return &pulumirpc.RunResponse{}, nil
}

// RunPlugin runs a plugin until it ends or nobody listens to it any longer.
func (h *host) RunPlugin(
	request *pulumirpc.RunPluginRequest, answers pulumirpc.LanguageRuntime_RunPluginServer,
) error {
	command, err := h.language.plugin(request)
	if err != nil {
		return err
	}
	var turn sync.Mutex // a stream takes one answer at a time
	send := func(answer *pulumirpc.RunPluginResponse) error {
		turn.Lock()
		defer turn.Unlock()
		return answers.Send(answer)
	}
	command.Dir, command.Env = request.GetPwd(), append(request.GetEnv(), command.Env...)
	command.Stdout = each(func(text []byte) error {
		return send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stdout{Stdout: text}})
	})
	command.Stderr = each(func(text []byte) error {
		return send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stderr{Stderr: text}})
	})
	code, err := run(answers.Context(), command)
	if err != nil {
		return err
	}
	return send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(code)}})
}

// InstallDependencies installs what a program or plugin needs.
func (h *host) InstallDependencies(
	request *pulumirpc.InstallDependenciesRequest, answers pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	commands, err := h.language.install(request.GetInfo())
	if err != nil {
		return err
	}
	for _, command := range commands {
		command.Dir = request.GetInfo().GetProgramDirectory()
		if err := quietly(answers.Context(), command); err != nil {
			return err
		}
	}
	return nil
}

// GeneratePackage writes the package of a schema.
func (h *host) GeneratePackage(
	_ context.Context, request *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	files, err := h.language.generate(request)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		path := filepath.Join(request.GetDirectory(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.GeneratePackageResponse{}, nil
}

// Link makes a program use packages that were generated.
func (h *host) Link(ctx context.Context, request *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	var names []string
	for _, linked := range request.GetPackages() {
		command, err := h.language.link(request.GetInfo(), linked.GetPath())
		if err != nil {
			return nil, err
		}
		command.Dir = request.GetInfo().GetRootDirectory()
		if err := quietly(ctx, command); err != nil {
			return nil, err
		}
		names = append(names, linked.GetPackage().GetName())
	}
	return &pulumirpc.LinkResponse{ImportInstructions: "installed: " + strings.Join(names, ", ")}, nil
}

// bound reads a schema as the code generators take it.
func bound(request *pulumirpc.GeneratePackageRequest) (*schema.Package, schema.ReferenceLoader, error) {
	client, err := schema.NewLoaderClient(request.GetLoaderTarget())
	if err != nil {
		return nil, nil, err
	}
	loader := schema.NewCachedLoader(client)
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(request.GetSchema()), &spec); err != nil {
		return nil, nil, err
	}
	described, problems, err := schema.BindSpec(spec, loader, schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		return nil, nil, err
	}
	if problems.HasErrors() {
		return nil, nil, problems
	}
	return described, loader, nil
}

// run runs a command to its end and returns its exit code; it ends the command with the context. An error tells that
// there was no run.
func run(ctx context.Context, command *exec.Cmd) (int, error) {
	if err := command.Start(); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	defer stop()
	err := command.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// quietly runs a command of which only the failure is of interest.
func quietly(ctx context.Context, command *exec.Cmd) error {
	var said strings.Builder
	command.Stdout, command.Stderr = &said, &said
	code, err := run(ctx, command)
	if err == nil && code != 0 {
		err = status.Errorf(codes.FailedPrecondition, "%s ended with %d: %s", command, code, said.String())
	}
	return err
}

// each is a writer that hands on every text.
type each func([]byte) error

var _ io.Writer = each(nil)

func (take each) Write(text []byte) (int, error) { return len(text), take(append([]byte{}, text...)) }
