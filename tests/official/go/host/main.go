// Command host is a language host of Pulumi for the tests: it runs programs and plugins of one language for the command
// line, and generates packages for it. Its name says which language, as the command line finds hosts by their names.
//
// The official hosts are in no registry. Unlike them it asks for no plugins on behalf of a program, so that the command
// line downloads none, and it knows one way to install packages for each language.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

// language is what differs between hosts. Its commands say what they need of the environment beyond what they are run in.
type language interface {
	program(request *pulumirpc.RunRequest, engine string) (*exec.Cmd, error)
	plugin(request *pulumirpc.RunPluginRequest) (*exec.Cmd, error)
	install(info *pulumirpc.ProgramInfo) ([]*exec.Cmd, error)
	link(info *pulumirpc.ProgramInfo, folder string) (*exec.Cmd, error)
	generate(request *pulumirpc.GeneratePackageRequest) (map[string][]byte, error)
}

var languages = map[string]language{"nodejs": nodejs{}, "python": python{}}

const aliveEvery = 10 * time.Second

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve says its port on stdout, and ends when it is interrupted or the engine that started it is gone.
func serve() error {
	name := strings.TrimPrefix(filepath.Base(os.Args[0]), "pulumi-language-")
	chosen, known := languages[name]
	if !known || len(os.Args) < 2 {
		return fmt.Errorf("usage: pulumi-language-LANGUAGE ENGINE, of the languages that this host knows; not %q", name)
	}
	engine := os.Args[len(os.Args)-1]
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt)
	defer end()
	if err := rpcutil.Healthcheck(ctx, engine, aliveEvery, end); err != nil {
		return fmt.Errorf("the engine at %s doesn't answer: %w", engine, err)
	}
	ended := make(chan bool)
	go func() {
		<-ctx.Done()
		close(ended)
	}()
	served, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{Cancel: ended, Init: func(server *grpc.Server) error {
		pulumirpc.RegisterLanguageRuntimeServer(server, &host{language: chosen, engine: engine})
		return nil
	}})
	if err != nil {
		return err
	}
	fmt.Println(served.Port)
	return <-served.Done
}
