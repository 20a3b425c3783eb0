"""Directories of manifests for tests, and how to read them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from locallb.model.identities import ClusterName, ObjectKey
from locallb.sources import manifests
from locallb.sources.entries import ManifestsSource
from locallb.sources.manifests import ParseCache, read_manifests
from locallb.sources.source import SourceResult

DEMO = ClusterName("demo")
DATA = Path(__file__).parent / "data"


class Clock:
    """A clock that tests set; every file was written long before."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time() + 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def clock_of_readings() -> Iterator[Clock]:
    """Have readings of manifests go by a clock of the test."""
    made = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "time", made)
        yield made


def service(name: str, port: int = 8080) -> str:
    return f"""\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: shop
spec:
  type: LoadBalancer
  ports:
  - port: {port}
    nodePort: 30080
"""


def key(name: str) -> ObjectKey:
    """Return the key of such a Service."""
    return ObjectKey(DEMO, "shop", name)


@dataclass(frozen=True)
class Place:
    """A project with a directory `manifests`, and a directory for last good readings."""

    root: Path

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def readings(self) -> Path:
        return self.root / "state" / "readings"

    def write(self, **files: str) -> None:
        """Write files, `web="..."` to `web.yaml`."""
        for name, text in files.items():
            (self.manifests / f"{name}.yaml").write_text(text)

    def read(
        self, held: Collection[ObjectKey] = (), *, keep: bool = False, memory: ParseCache | None = None
    ) -> SourceResult:
        source = ManifestsSource(DEMO, "manifests")
        return read_manifests(source, self.root, self.readings, held_services=held, keep=keep, memory=memory)

    def names(self, held: Collection[ObjectKey] = (), *, keep: bool = False) -> list[str]:
        """Read the source and give the names of its Services."""
        return names(self.read(held, keep=keep))

    def copy(self) -> dict[str, object]:
        """Return the files in the last good reading."""
        retained: dict[str, object] = json.loads((self.readings / "demo.json").read_text())["files"]
        return retained


def names(reading: SourceResult) -> list[str]:
    """Return the names of the Services of a reading."""
    return [service.key.name for service in reading.parsed.services]


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("**/*") if path.is_file()}
