"""Classes `local-lb` in a running cluster whose source asks for them: previewed, made, repaired, removed.

Its API is imitated; what a real one means is the cluster tier's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locallb.gateway.kinds import KINDS
from locallb.ingress.parsing import INGRESS_KINDS
from locallb.model.own_classes import CLUSTER_ANNOTATION, DEFAULT_ANNOTATION, FINALIZER, NAME, OWNER_LABEL
from locallb.model.snapshot import Access
from tests.support.fake_api import Api, served, versioned
from tests.support.gateway_clients import address_of, answering, get, service, web
from tests.support.gateway_objects import backend, route, rule
from tests.support.manifests import node
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy
GATEWAYS, INGRESSES = "gatewayclasses", "ingressclasses"


@pytest.fixture
def api(play: Stage, tmp_path: Path) -> Iterator[tuple[Api, Access]]:
    """Serve an API that is the stack's only source, with all kinds and no class."""
    (tmp_path / "api").mkdir()
    with served(tmp_path / "api") as (answers, access):
        ask_for_classes(play, access)
        answers.nodes = [versioned(node())]
        plurals = (kind.plural for kind in (*KINDS.values(), *INGRESS_KINDS.values()))
        answers.others = {plural: [] for plural in ("namespaces", *plurals)}
        yield answers, access


def ask_for_classes(play: Stage, access: Access, *, classes: bool = True) -> None:
    cluster: dict[str, object] = {
        "name": "c",
        "kubeconfig": access.kubeconfig,
        "loopbackBackends": True,
        "classes": classes,
    }
    play.configure(sources=[{"kubernetes": cluster}])


def part(answers: Api, plural: str, name: str) -> Any:  # noqa: ANN401 - JSON
    """Return a part of the metadata of our class; None without a class."""
    found = answers.named(plural, NAME)
    return found["metadata"].get(name, {}) if found else None


def test_classes_are_previewed_made_kept_and_removed(play: Stage, api: tuple[Api, Access]) -> None:
    """By `up` alone; what somebody changed is repaired by the next one."""
    answers, access = api
    shown = play.run("preview")
    assert "c/gateway-class" in shown.out
    assert "c/ingress-class" in shown.out
    assert answers.written == []
    play.up()
    assert part(answers, GATEWAYS, "labels")[OWNER_LABEL].startswith("local-lb-")
    assert part(answers, INGRESSES, "annotations") == {CLUSTER_ANNOTATION: "c", DEFAULT_ANNOTATION: "true"}
    play.up()  # the class that is there now gets its status
    assert play.run("preview", "--expect-no-changes").code == 0
    answers.write(GATEWAYS, NAME, None)
    found = answers.named(INGRESSES, NAME) or {}
    answers.write(INGRESSES, NAME, {**found, "metadata": {**found["metadata"], "annotations": {"a": "b"}}})
    play.up()
    assert part(answers, GATEWAYS, "labels")
    assert part(answers, INGRESSES, "annotations") == {"a": "b", CLUSTER_ANNOTATION: "c", DEFAULT_ANNOTATION: "true"}
    ask_for_classes(play, access, classes=False)
    play.up()
    assert (answers.named(GATEWAYS, NAME), answers.named(INGRESSES, NAME)) == (None, None)
    ask_for_classes(play, access)
    play.up()
    assert play.run("destroy", "--yes").code == 0
    assert (answers.named(GATEWAYS, NAME), answers.named(INGRESSES, NAME)) == (None, None)


def test_missing_rights_are_one_sentence_and_everything_else_goes_on(play: Stage, api: tuple[Api, Access]) -> None:
    """What is there from earlier stays; so does all of it while the API doesn't answer."""
    answers, _ = api
    answers.forbidden = {f"create {GATEWAYS}", f"delete {INGRESSES}"}
    done = play.up()
    assert (done.out + done.err).count("deploy/rbac-classes.yaml") == 1
    assert answers.written == []
    answers.forbidden = set()
    play.up()
    answers.forbidden = {f"patch {GATEWAYS}"}
    answers.written.clear()
    play.up()
    answers.listed = (503, b"{}")
    assert play.run("up", "--yes").code != 0
    answers.listed = None
    assert answers.written == []
    assert part(answers, GATEWAYS, "labels")


def test_watch_makes_classes_repairs_them_and_serves_what_names_them(play: Stage, api: tuple[Api, Access]) -> None:
    """A Gateway of the class is served at once, and holds it; the class stays with it when the stack goes."""
    answers, _ = api
    with answering("one") as one:
        answers.services = [versioned(service("one", one))]
        with watching(play) as watch:
            eventually(lambda: part(answers, GATEWAYS, "labels"), watch)
            eventually(lambda: part(answers, INGRESSES, "labels"), watch)
            eventually(lambda: any(plural == GATEWAYS for plural, _, _ in tuple(answers.patched)), watch)
            answers.write(GATEWAYS, NAME, None)
            eventually(lambda: part(answers, GATEWAYS, "labels"), watch)
            made = web()
            spec = {**made["spec"], "gatewayClassName": NAME}
            answers.write("gateways", made["metadata"]["name"], {**made, "spec": spec})
            answers.write("httproutes", "route", route(rule("/", backends=[backend("one")]), hostnames=["a.test"]))
            eventually(lambda: [row["state"] for row in play.run("status", "--json").json] == ["serving"], watch)
            eventually(lambda: get(address_of(play)) == (200, "one / -"), watch)
            eventually(lambda: part(answers, GATEWAYS, "finalizers") == [FINALIZER], watch)
        assert play.run("destroy", "--yes").code == 0
    assert part(answers, GATEWAYS, "finalizers") == []
    assert answers.named(INGRESSES, NAME) is None
