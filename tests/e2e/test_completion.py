"""Completion of what a state has, against states that `up` has just written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from locallb.cli.completion import answers
from tests.support.backends import Backend
from tests.support.environment import lent
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_services_and_backends_of_a_deployed_stack(play: Stage, backend: Callable[..., Backend], proxies: str) -> None:
    """Whichever proxies serve them: names as `status` takes them, and addresses of backends, none of a Service."""
    play.configure(proxies=proxies)
    to = backend("one").port
    play.write("all.yaml", node(), *(service(name, port(8080, to)) for name in ("web", "api")))
    play.up()
    for terms in (["status", ""], ["open", ""], ["up", "--target", ""], ["drain", ""]):
        assert answers(terms, play.root) == ["c/n/api", "c/n/web"], terms
        assert answers([*terms[:-1], "c/n/w"], play.root) == ["c/n/web"], terms
    for terms in (["drain", "c/n/web", "--backend", ""], ["fault", "web", "--down", "--backend", "127"]):
        assert answers(terms, play.root) == ["127.0.0.1"], terms
    for name in answers(["status", ""], play.root):
        assert play.run("status", name).code == 0
    assert play.run("drain", "web", "--backend", "127.0.0.1").code == 0


def test_pages_are_completed() -> None:
    """Those that `help` lists."""
    assert answers(["help", "conf"], Path("/")) == ["config", "configuration"]


def test_contexts_are_completed(tmp_path: Path) -> None:
    """Those of each file that KUBECONFIG names; one that can't be read says nothing."""
    first, second, broken = (tmp_path / name for name in "abc")
    first.write_text(yaml.safe_dump({"contexts": [{"name": "lab"}, {"name": "$(reboot)"}]}))
    second.write_text(yaml.safe_dump({"contexts": [{"name": "shop"}, "x"]}))
    broken.write_text("{")
    with lent({"KUBECONFIG": f"{first}:{second}:{broken}:{tmp_path / 'gone'}"}):
        assert answers(["up", "--kubernetes", ""], tmp_path) == ["lab", "shop"]
        assert answers(["watch", "--context", "sh"], tmp_path) == ["shop"]
