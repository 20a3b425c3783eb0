"""How tests find the official Pulumi CLI and call it: the one that was built, or else one on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.pulumi_build import built, place


def find_cli() -> Path | None:
    if path := built():
        return path
    ambient = shutil.which("pulumi")
    return Path(ambient) if ambient else None


def cli_environment() -> dict[str, str]:
    """Return what the CLI is told whatever it runs: no question, no look for updates, nobody's login and plugins."""
    found = find_cli()
    paths = [str(found.parent)] if found else []
    return {
        "PATH": os.pathsep.join([*paths, os.environ["PATH"]]),
        "PULUMI_HOME": str(place() / "home"),
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


needs_cli = pytest.mark.skipif(find_cli() is None, reason="Pulumi's CLI isn't built; `make test-pulumi` builds it")
