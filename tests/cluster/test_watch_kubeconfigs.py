"""Kubeconfigs that change under `locallb watch`: what they mean now is followed, and what they lack takes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.backends import Backend, refused
from tests.support.cluster_services import address, finalizers, ingress, made
from tests.support.control_plane import ControlPlane, Document, Objects, control_plane
from tests.support.stages import Stage
from tests.support.watching import Watch, answers, eventually, get, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]


@pytest.fixture
def staged(play: Stage, plane: ControlPlane) -> Stage:
    """Have the stack go by a kubeconfig of its own, and by whatever context is current in it."""
    kubeconfig(play).write_text(plane.kubeconfig.read_text())
    play.configure(sources=[{"kubernetes": {"name": "real", "kubeconfig": "kubeconfig", "loopbackBackends": True}}])
    return play


def kubeconfig(play: Stage) -> Path:
    return play.root / "kubeconfig"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane("other", tmp_path_factory.mktemp("o") / "c") as second:
        yield second


def both(first: ControlPlane, second: ControlPlane, current: ControlPlane) -> str:
    """Write a kubeconfig with the contexts of both, as `kubectl config use-context` leaves it."""
    documents = [yaml.safe_load(plane.kubeconfig.read_text()) for plane in (first, second)]
    for document in documents:
        document["users"][0]["name"] = document["contexts"][0]["context"]["user"] = (
            f"local-lb of {document['current-context']}"
        )
    merged = {
        kind: [entry for document in documents for entry in document[kind]]
        for kind in ("clusters", "users", "contexts")
    }
    return yaml.safe_dump({**documents[0], **merged, "current-context": current.name})


def lists(plane: ControlPlane) -> int:
    """Return how often local-lb listed the Services so far."""
    lines: list[Mapping[str, Any]] = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    return sum(line["verb"] == "list" and line["objectRef"]["resource"] == "services" for line in lines)


def checks(watch: Watch) -> int:
    """Return how often the loop looked so far."""
    _, page = get(watch, "/metrics")
    return int(float(re.search(r"^locallb_plan_seconds_count (.+)$", page, re.MULTILINE)[1]))  # type: ignore[index]


def test_the_current_context_is_followed_there_and_back(
    cluster: Objects, other: ControlPlane, staged: Stage, backend: Backends
) -> None:
    """What the one cluster had is given up, what the other has is served, under the same name too."""
    config, plane = kubeconfig(staged), cluster.plane
    config.write_text(both(plane, other, plane))
    with other.client() as client, watching(staged) as watch:
        present = Objects(other, client)
        present.node("node-b")
        for name in ("web", "same"):
            made(cluster, backend, name)
        for name in ("shop", "same"):
            document: Document = made(present, lambda *_a, **_k: backend("unused"), name)
            backend(f"their {name}", port=document["spec"]["ports"][0]["nodePort"])
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        eventually(lambda: answers(address(cluster, "same"), 8080, "same"), watch)
        at = address(cluster, "web")

        config.write_text(both(plane, other, other))
        eventually(lambda: answers(address(present, "shop"), 8080, "their shop"), watch)
        eventually(lambda: answers(address(present, "same"), 8080, "their same"), watch)
        eventually(lambda: not finalizers(cluster, "web") and not ingress(cluster, "web"), watch)
        eventually(lambda: "n/web" not in staged.pids(), watch)
        assert address(present, "shop") == at or refused(at, 8080)

        config.write_text(both(plane, other, plane))
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        eventually(lambda: answers(address(cluster, "same"), 8080, "same"), watch)
        eventually(lambda: not finalizers(present, "shop") and not ingress(present, "shop"), watch)
        eventually(lambda: set(staged.pids()) == {"n/web", "n/same"}, watch)


def test_unrelated_kubeconfig_edits_cause_no_new_list_requests(
    cluster: Objects, staged: Stage, backend: Backends
) -> None:
    """Another order, other contexts, another namespace: nothing is listed again, and following goes on."""
    config, plane = kubeconfig(staged), cluster.plane
    with watching(staged, "--metrics", "127.0.0.1:0") as watch:
        made(cluster, backend, "web")
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        before = lists(plane)
        document = yaml.safe_load(config.read_text())
        document["contexts"][0]["context"]["namespace"] = "n"
        document["contexts"].append({"name": "more", "context": {"cluster": "gone", "user": "gone"}})
        for text in (json.dumps(document), yaml.safe_dump(document, sort_keys=True)):
            observed = checks(watch)
            config.write_text(text)
            eventually(lambda observed=observed: checks(watch) > observed, watch)  # type: ignore[misc]
        made(cluster, backend, "more")
        eventually(lambda: answers(address(cluster, "more"), 8080, "more"), watch)
        assert lists(plane) == before


def test_a_file_that_cannot_be_used_takes_nothing_away(cluster: Objects, staged: Stage, backend: Backends) -> None:
    """Half of it, none, without a context: it is told, what serves goes on, and a repaired file is enough."""
    config = kubeconfig(staged)
    text = config.read_text()
    broken = {
        "{": "isn't a kubeconfig",
        "": "is empty; it may be half-written",
        "current-context: gone": "has no context gone",
    }
    with watching(staged) as watch:
        made(cluster, backend, "web")
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        at = address(cluster, "web")
        for content, reported in broken.items():
            config.write_text(content)
            eventually(lambda reported=reported: reported in watch.reported(), watch)  # type: ignore[misc]
            assert answers(at, 8080, "web")
        config.unlink()
        eventually(lambda: "No such file" in watch.reported(), watch)
        assert answers(at, 8080, "web")
        config.write_text(text)
        eventually(lambda: "no longer: source real: the kubeconfig" in watch.reported(), watch)
        made(cluster, backend, "more")
        eventually(lambda: answers(address(cluster, "more"), 8080, "more"), watch)
        assert address(cluster, "web") == at


def test_a_file_that_comes_later_is_enough(cluster: Objects, staged: Stage, backend: Backends) -> None:
    """Where nothing was ever read the loop says so, and goes on by itself."""
    config = kubeconfig(staged)
    text = config.read_text()
    config.unlink()
    made(cluster, backend, "web")
    with watching(staged) as watch:
        eventually(lambda: "No such file" in watch.reported(), watch)
        config.write_text(text)
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)


def test_services_stay_when_the_kubeconfig_leads_to_a_silent_server(
    cluster: Objects, staged: Stage, backend: Backends
) -> None:
    """The last reading counts, and is reported as old, until the right cluster answers again."""
    config = kubeconfig(staged)
    text = config.read_text()
    with watching(staged) as watch:
        made(cluster, backend, "web")
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        at = address(cluster, "web")
        config.write_text(text.replace(f":{cluster.plane.port}", ":1"))
        eventually(lambda: "127.0.0.1:1 doesn't answer" in watch.reported(), watch)
        assert answers(at, 8080, "web")
        config.write_text(text)
        made(cluster, backend, "more")
        eventually(lambda: answers(address(cluster, "more"), 8080, "more"), watch)
        assert address(cluster, "web") == at
