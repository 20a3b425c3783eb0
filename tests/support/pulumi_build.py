"""The official Pulumi CLI and its language hosts, built from their Go modules: what tests of Pulumi compare with.

`python -m tests.support.pulumi_build` makes what is missing. Versions are pinned by go/go.mod; results are kept in
.cache, by the version of Pulumi, the hosts also by their own text. The official hosts of Python and Node.js are in no
registry: `go/host` stands in; that of YAML is a module of its own, which yaml/go.mod pins. With `--kubernetes` it makes
the plugin of pulumi-kubernetes as well, which takes minutes: it is in no registry but as a module's source. It lacks
its components (charts and files of YAML), for which all of the SDK for Go would be compiled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from tests.support.cluster_build import CHECKOUT, compile_to, environment, go, missing, pinned

MODULE = CHECKOUT / "tests/official/go"
YAML = CHECKOUT / "tests/official/yaml"
_PULUMI = "github.com/pulumi/pulumi"
_CLI = f"{_PULUMI}/pkg/v3"
_SDK = f"{_PULUMI}/sdk/v3"
_YAML = "github.com/pulumi/pulumi-yaml"
_SCRIPT = "pulumi-language-python-exec"
"""What runs a program of Python: the SDK's own, which its package on PyPI lacks."""
_KUBERNETES = "github.com/pulumi/pulumi-kubernetes"
_KUBERNETES_PLUGIN = f"{_KUBERNETES}/provider/v4@v4.0.0-20260115033456-f47bc2d6f199"
"""The newest version that the module proxy has."""
_OF_COMPONENTS = re.compile(r'\t(provider(helm|kustomize|yaml)v\d "|"kubernetes:)')
"""Lines that import its components and register them."""


def version() -> str:
    return pinned(MODULE, _CLI)


def place() -> Path:
    """Return the directory of the CLI and its hosts, which it finds beside itself."""
    cache = (CHECKOUT / ".cache").resolve()  # the CLI complains of a host on PATH at another path than its own
    return cache / "official" / version()


def built() -> Path | None:
    """Return where the CLI is; None where it or a host isn't built from the text that is here."""
    there = {path.name: path.resolve() for path in place().glob("*")}
    whole = {"pulumi", _SCRIPT, *hosts().values()} <= there.keys()
    meant = whole and all(there.get(name) == there[file] for name, file in hosts().items())
    return place() / "pulumi" if meant else None


def build() -> None:
    """Make what isn't there; whoever comes second waits. Raises FileNotFoundError where Go is missing."""
    place().mkdir(parents=True, exist_ok=True)
    with (place() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built():
            _build()


def hosts() -> dict[str, str]:
    """Return the file that each host's name leads to: it has the version or a digest of what it is built from."""
    digest = hashlib.sha256()
    for path in (*sorted((MODULE / "host").glob("*.go")), MODULE / "go.sum"):
        digest.update(path.read_bytes())
    ours = f"host-{digest.hexdigest()[:12]}"
    yaml = f"yaml-{pinned(YAML, _YAML)}"
    return {f"pulumi-language-{name}": file for name, file in (("nodejs", ours), ("python", ours), ("yaml", yaml))}


def _build() -> None:
    flags = f"-X {_SDK}/go/common/version.Version={version()}"
    compile_to(place() / "pulumi", MODULE, f"{_CLI}/cmd/pulumi", "build", flags=flags)
    if not (place() / _SCRIPT).exists():
        _copy_script()
    files = hosts()
    for name, module, package, flags in (
        ("pulumi-language-python", MODULE, "./host", f"-X main.version={version()}"),
        ("pulumi-language-yaml", YAML, f"{_YAML}/cmd/pulumi-language-yaml", ""),
    ):
        compile_to(place() / files[name], module, package, "build", flags=flags)
    for name, file in files.items():
        fresh = place() / f"{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(file)
        fresh.rename(place() / name)


def _copy_script() -> None:
    command = [go(), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", _SDK]
    done = subprocess.run(command, check=True, cwd=MODULE, env=environment(), stdout=subprocess.PIPE, text=True)
    fresh = place() / f"{_SCRIPT}.new"
    shutil.copyfile(Path(done.stdout.strip()) / "python" / "cmd" / _SCRIPT, fresh)
    fresh.rename(place() / _SCRIPT)


def kubernetes_plugin() -> Path:
    """Return where the plugin of pulumi-kubernetes is, once it is built: as the plugin of the SDK's version."""
    return CHECKOUT / ".cache/official" / f"kubernetes-{metadata.version('pulumi_kubernetes')}" / "plugin"


def build_kubernetes_plugin() -> None:
    """Make it where it isn't there. Raises FileNotFoundError where Go is missing."""
    with missing(kubernetes_plugin()) as wanted, tempfile.TemporaryDirectory() as room:
        if wanted:
            _build_kubernetes_plugin(Path(room) / "source", kubernetes_plugin())


def _build_kubernetes_plugin(source: Path, target: Path) -> None:
    """Build it in a writable copy, with the two files that its own Makefile generates and no module has."""
    download = [go(), "mod", "download", "-json", _KUBERNETES_PLUGIN]
    done = subprocess.run(download, check=True, env=environment(), stdout=subprocess.PIPE, text=True)
    shutil.copytree(json.loads(done.stdout)["Dir"], source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    version = metadata.version("pulumi_kubernetes")
    command = source / "cmd/pulumi-resource-kubernetes"
    for name, more in (("schema", {"version": version}), ("terraform-mapping", {})):
        content = json.loads((command / f"{name}.json").read_text())
        (command / f"{name}-embed.json").write_text(json.dumps({**content, **more}))
    components = source / "pkg/provider/provider_construct.go"
    lines = components.read_text().splitlines(keepends=True)
    components.write_text("".join(line for line in lines if not _OF_COMPONENTS.match(line)))
    subprocess.run([go(), "mod", "edit", "-dropreplace", f"{_KUBERNETES}/sdk/v4"], check=True, cwd=source)
    flags = f"-ldflags=-s -w -X {_KUBERNETES}/provider/v4/pkg/version.Version={version}"
    fresh = target.with_suffix(".new").absolute()
    terms = ("-mod=mod", flags, "-o", str(fresh), "./cmd/pulumi-resource-kubernetes")
    subprocess.run([go(), "build", *terms], check=True, cwd=source, env=environment())
    fresh.rename(target)


def main() -> None:
    """Build it, and complain of what is missing for that."""
    try:
        build()
        if "--kubernetes" in sys.argv:
            build_kubernetes_plugin()
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
