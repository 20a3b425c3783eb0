"""Golden files: the outputs that tests compare byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

GOLDENS = Path(__file__).parents[1] / "goldens"


@dataclass(frozen=True)
class Golden:
    """Expected texts under tests/goldens, compared byte for byte.

    A case is a directory, `tests/goldens/<area>/<case>`, and every file in it is an output, except the ones named as
    inputs. `pytest --update-goldens` writes the outputs again and deletes stale ones; the diff is then read in git.

        def test_rendering(golden):
            golden.check("envoy/tcp", {"lds.json": text, …})             # the whole directory
            golden.check("plan/chart", outputs, inputs={"services.yaml"})

        def test_no_case_is_stale(golden):
            golden.cases("envoy", CASES)                                 # the directories of the area
    """

    root: Path
    update: bool

    def path(self, case: str) -> Path:
        """Return the directory of a case, to read its inputs."""
        return self.root / case

    def check(self, case: str, outputs: Mapping[str, str], inputs: Collection[str] = ()) -> None:
        """Compare a case's outputs with its directory: the same names and the same bytes."""
        directory = self.path(case)
        present = {path.name for path in directory.iterdir()} - set(inputs) if directory.is_dir() else set()
        if self.update:
            directory.mkdir(parents=True, exist_ok=True)
            for name in present - set(outputs):
                (directory / name).unlink()
            for name, text in outputs.items():
                (directory / name).write_bytes(text.encode())
            return
        assert present == set(outputs), f"{directory}: run pytest --update-goldens and read the diff"
        for name, text in outputs.items():
            assert (directory / name).read_bytes().decode() == text, f"{directory / name} differs"

    def cases(self, area: str, names: Collection[str]) -> None:
        """Compare the directories of an area with the names of its cases."""
        present = {path.name for path in self.path(area).iterdir()} if self.path(area).is_dir() else set()
        if self.update:
            for stale in present - set(names):
                shutil.rmtree(self.path(area) / stale)
            return
        assert present == set(names), f"{self.path(area)}: run pytest --update-goldens and read the diff"
