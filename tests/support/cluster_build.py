"""The binaries of the test clusters: Kubernetes' own from its Go module, etcd from the system.

`python -m tests.support.cluster_build [NAME...]` makes what is missing: by default what a cluster without
kubelets needs. Versions are pinned by go/go.mod; results are kept in .cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = CHECKOUT / ".cache" / "cluster" / "bin"
MODULE = CHECKOUT / "tests/cluster/go"
PACKAGE = "k8s.io/kubernetes"
BINARIES = ("kube-apiserver", "kube-controller-manager", "kube-proxy")
KUBELETS = (*BINARIES, "kube-scheduler", "kubelet", "agnhost", "kubectl")
"""What a cluster with kubelets needs; agnhost is what its pods run, kubectl takes what users apply."""
UPSTREAM = "e2e.test"
"""Kubernetes' own end-to-end tests, as one program."""
COREDNS = "coredns"
"""What resolves Services' names in clusters in which upstream's tests run: a module of its own."""
_COREDNS = "github.com/coredns/coredns@v1.13.1"
TESTS = ("test", "-c", "-vet=off")
"""The words that make tests a program."""
_PREFIX = "k8s.io/component-base/version"


def version() -> str:
    return pinned(MODULE, PACKAGE)


def pinned(directory: Path, module: str) -> str:
    """Read which version of another module a module of the tests has."""
    lines = (directory / "go.mod").read_text(encoding="utf-8").splitlines()
    return next(
        line.split(f"{module} ")[1].split()[0]
        for line in lines
        if line.strip().removeprefix("require ").startswith(f"{module} v")
    )


def kubernetes(name: str) -> Path:
    """Return where a binary of Kubernetes is. Raises FileNotFoundError with the remedy where it wasn't built."""
    path = BIN / version() / name
    if not path.exists():
        raise FileNotFoundError(f"{path} isn't built; run `make test-cluster`")
    return path


def etcd() -> Path:
    """Return where etcd is. Raises FileNotFoundError with the remedy."""
    program = shutil.which("etcd")
    if program is None:
        raise FileNotFoundError("etcd isn't installed (Debian: apt install etcd-server)")
    return Path(program)


def build(name: str) -> None:
    """Build one binary where it isn't there; Go's own cache makes a second time quick."""
    target = BIN / version() / name
    if name == COREDNS:
        with missing(target) as wanted:
            if wanted:
                _install(go(), _COREDNS, target.parent)
        return
    major, minor, _ = version().removeprefix("v").split(".")
    values = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {_PREFIX}.{key}={value}" for key, value in values.items())
    compile_to(target, MODULE, f"{PACKAGE}/{_directory(name)}", *_verb(name), flags=flags)


def go() -> str:
    """Return where Go is. Raises FileNotFoundError with the remedy."""
    program = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if program is None:
        raise FileNotFoundError("Go isn't installed; `pip install -r tests/cluster/requirements.txt` brings it")
    return program


@contextlib.contextmanager
def missing(target: Path) -> Iterator[bool]:
    """Tell whether a file is to be made, and let nobody else make it meanwhile: a second process waits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not target.exists()


def compile_to(target: Path, directory: Path, package: str, *verb: str, flags: str = "") -> None:
    """Build a package that a module of the tests pins, where its program isn't there."""
    with missing(target) as wanted:
        if wanted:
            fresh = target.with_suffix(".new")
            options = ("-mod=readonly", "-trimpath", f"-ldflags=-s -w {flags}", "-o", str(fresh.absolute()))
            subprocess.run([go(), *verb, *options, package], check=True, cwd=directory, env=environment())
            fresh.rename(target)


def _install(go: str, module: str, directory: Path) -> None:
    """Build the program of another module, which Go itself renames into place."""
    command = [go, "install", "-trimpath", "-ldflags=-s -w", module]
    subprocess.run(command, check=True, env={**environment(), "GOBIN": str(directory.absolute())})


def environment() -> dict[str, str]:
    """Return what Go is told whatever it builds."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}


def _verb(name: str) -> tuple[str, ...]:
    return TESTS if name == UPSTREAM else ("build",)


def _directory(name: str) -> str:
    return {"agnhost": "test/images/agnhost", UPSTREAM: "test/e2e"}.get(name, f"cmd/{name}")


def main() -> None:
    """Build what the tests need, and complain of what they can't do without."""
    try:
        etcd()
        for name in sys.argv[1:] or BINARIES:
            build(name)
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
