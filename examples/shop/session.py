"""Plays a first session with the shop and draws it: every line of the picture is what the commands printed to stay.

It works on a copy of the project, with a state home of its own, and takes all away at the end. What the documentation
has is drawn anew by `.venv/bin/python examples/shop/session.py docs/session.svg`. Not here: the pods (`backends`).
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

_LOCALLB = [sys.executable, "-m", "locallb", "--stack", "dev"]
ROOT = Path(__file__).resolve().parents[2]
WIDTH = 112
_ELSEWHERE = re.compile(r"@font-face \{.*?\}\n|<!--.*?-->\n", re.DOTALL)
"""What would load a font, or leads elsewhere; every browser has letters of one width."""
_PASSING = re.compile("[\u2800-\u28ff]")
"""How a line begins that shows that something is going on, which a terminal removes."""
_ADD = r"sed -i 's/port: 9000,/port: 9001,/' examples/shop/manifests/web.yaml"


def main(picture: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "local-lb"
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "tests", "build", "dist"))
        (project / ".state").mkdir()
        session = Session(project, Path(scratch) / "state")
        shop = [sys.executable, "examples/shop/backends.py"]
        session.run([*shop, "start"])
        try:
            play(session)
        finally:
            session.run([*_LOCALLB, "destroy", "--yes"])
            session.run([*shop, "stop"])
    drawn = session.console.export_svg(title="local-lb", unique_id="session")
    picture.write_text(_ELSEWHERE.sub("", drawn), encoding="utf-8")


class Session:
    """A user's terminal."""

    def __init__(self, project: Path, state: Path) -> None:
        self.console = Console(record=True, width=WIDTH, file=io.StringIO())
        self._project = project
        self._environment = {**os.environ, "XDG_STATE_HOME": str(state), "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}

    def run(self, command: list[str]) -> str:
        """Run a command in the project. Raises CalledProcessError."""
        done = subprocess.run(
            command,
            cwd=self._project,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout

    def show(self, typed: str, command: list[str]) -> None:
        """Run a command, and show what a user types for it and sees."""
        self.console.print(Text.assemble(("$ ", "green"), (typed, "bold")))
        for line in map(Text.from_ansi, self.run(command).splitlines()):
            if not _PASSING.match(line.plain):
                self.console.print(line)
        self.console.print()


def play(session: Session) -> None:
    """Serve, ask, change, look what that would do, and do it."""
    session.show("locallb up --yes", [*_LOCALLB, "up", "--yes"])
    session.show("curl " + (url := _web(session)), ["curl", "--silent", "--show-error", url])
    session.show(_ADD, ["sh", "-c", _ADD])
    session.show("locallb preview", [*_LOCALLB, "preview"])
    session.show("locallb up --yes", [*_LOCALLB, "up", "--yes"])


def _web(session: Session) -> str:
    reported = json.loads(session.run([*_LOCALLB, "status", "--json"]))
    addresses = {service["name"]: service["addresses"] for service in reported}
    return f"http://{addresses['web'][0]}:8080/"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
