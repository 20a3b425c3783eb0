"""Pages that suppose a stack that serves: their commands are run one after the other, beside one that does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.elsewhere import NOT_RUN_HERE
from tests.support.gateway_clients import answering
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, parent, route, rule
from tests.support.manifests import node, port, service
from tests.support.pages import CHECKOUT, SESSIONS, commands
from tests.support.stages import stage


@pytest.mark.envoy
@pytest.mark.parametrize("page", SESSIONS)
def test_a_page_is_a_session(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command ends well and says something; what is told of orders on standard error stays a notice."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    typed = [command for command in commands(CHECKOUT / page) if command not in NOT_RUN_HERE]
    assert len(typed) > 5
    with stage() as play, answering("one") as number, answering("two", number, "127.0.0.2"):
        play.write("nodes.yaml", node("worker-1"), node("worker-2", "127.0.0.2"))
        play.write("service.yaml", service("web", port(8080, number), namespace="shop"))
        led = route(rule("/", backends=[backend("web")]), parentRefs=[parent("front")])
        play.write("gateway.yaml", gateway_class(), gateway(listener(port=8080), name="front"), led)
        play.up()
        for command in typed:
            terms = ["bash", "-eo", "pipefail", "-c", command]
            done = subprocess.run(terms, cwd=play.root, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            assert re.search("web|front", done.stdout) or command.endswith("--undo"), f"{command}\n{done.stdout}"
            assert "Error" not in done.stderr
            assert "error" not in done.stderr
