"""The official Pulumi CLI and `locallb` on the same stack, taking over from each other; needs a `pulumi` on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.support import CHECKOUT, Backend, Done, Stage, ask, envoys, node, port, service

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("pulumi"), reason="no `pulumi` on PATH: its recorded goldens stand in"),
]


@pytest.fixture
def both(play: Stage, backend: Callable[..., Backend]) -> Stage:
    """Give a stack of two Services in a project that the CLI can run: with its provider and this Python."""
    (play.root / "locallb").symlink_to(CHECKOUT / "locallb")
    (play.root / ".venv").symlink_to(sys.prefix)
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.write("api.yaml", service("api", port(8080, backend("api").port)))
    return play


def pulumi(stage: Stage, *words: str) -> Done:
    """Run the official CLI on the stack."""
    environment = {**os.environ, "PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "true"}
    command = ["pulumi", *words, "--stack", "dev", "--non-interactive", "--color", "never"]
    done = subprocess.run(
        command, check=False, cwd=stage.root, env=environment, capture_output=True, text=True, timeout=120
    )
    return Done(done.returncode, done.stdout, done.stderr)


def content(stage: Stage) -> None:
    """Check that neither engine has anything to do."""
    assert stage.run("preview", "--expect-no-changes").code == 0
    done = pulumi(stage, "preview", "--expect-no-changes")
    assert done.code == 0, done.out + done.err


def test_the_engines_take_over_from_each_other_in_every_phase(both: Stage) -> None:
    """Made by one, changed by the other, shrunk by the first, destroyed by the second; nothing is made anew."""
    assert pulumi(both, "stack", "init").code == 0
    done = pulumi(both, "up", "--yes", "--skip-preview")
    assert done.code == 0, done.out + done.err
    content(both)
    at, pids = both.addresses(), both.pids()
    both.write("extra.yaml", service("extra", port(8080, 30000)))
    both.up()
    content(both)
    (both.manifests / "api.yaml").unlink()
    assert pulumi(both, "up", "--yes", "--skip-preview").code == 0
    content(both)
    assert (both.addresses()["n/web"], both.pids()["n/web"]) == (at["n/web"], pids["n/web"])
    assert ask(at["n/web"], 8080) == "web: hello"
    assert pulumi(both, "refresh", "--yes", "--skip-preview").code == 0
    content(both)
    assert pulumi(both, "destroy", "--yes", "--skip-preview").code == 0
    assert envoys(both.root) == []


def test_a_mistake_is_one_sentence_in_the_official_cli_as_well(both: Stage) -> None:
    """No traceback of the program and none of the provider."""
    assert pulumi(both, "stack", "init").code == 0
    both.configure(pools=[{"name": "p", "addresses": ["127.77.0"]}])
    done = pulumi(both, "up", "--yes", "--skip-preview")
    assert done.code != 0
    assert "127.77.0" in done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert list(Path(both.state_home).glob("proxies/*")) == []
