"""The command `plugin install`: the provider of this installation, where the Pulumi CLI finds it for every project."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import locallb
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.model.errors import refusal
from locallb.storage import files, paths

_NAME = "pulumi-resource-locallb"
_SCRIPT = """\
#!/bin/sh
# Written by `locallb plugin install`: the provider of the installation that it was run from.
exec {} "$@"
"""
_EXECUTABLE = 0o755


def plugin(args: Arguments, out: Out) -> int:
    """Write a script that runs it, and say where."""
    place = _home() / "plugins" / f"resource-locallb-v{locallb.__version__}" / _NAME
    command = (sys.executable, str(Path(locallb.__file__).parent / "provider"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{place.parent} can't be made: {refusal(error)}; set PULUMI_HOME to another directory") from None
    script = _SCRIPT.format(shlex.join(command))
    files.write(place, script, mode=_EXECUTABLE)
    _remove_others(place, script)
    if args.json:
        out.raw(json.dumps({"name": "locallb", "version": locallb.__version__, "path": str(place)}))
    else:
        out.line(f"Installed the provider locallb {locallb.__version__}: {place}")
    return Exit.OK


def _remove_others(place: Path, script: str) -> None:
    """Remove what earlier versions of this installation wrote: it would run this version under another's number."""
    for other in place.parent.parent.glob(f"resource-locallb-v*/{_NAME}"):
        if other != place and not other.is_symlink() and other.is_file() and files.read(other) == script:
            with suppress(OSError):
                other.unlink()
                other.parent.rmdir()


def _home() -> Path:
    """Return the directory of the Pulumi CLI. Raises Refused where this user has none."""
    if given := os.environ.get("PULUMI_HOME"):
        return Path(given).absolute()
    try:
        return paths.home() / ".pulumi"
    except paths.PlaceError:
        raise Refused("this user has no home directory; set PULUMI_HOME to the Pulumi CLI's directory") from None
