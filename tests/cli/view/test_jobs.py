"""Three jobs of a new user in the terminal view, and the keys that each takes, which docs/view.md counts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.cli.commands.view import StackActions
from locallb.cli.view.app import ViewApp
from locallb.cli.view.listing import Scene
from locallb.model.identities import Fingerprint
from locallb.model.snapshot import LocalAuthority
from locallb.planning.notices import DRAIN, Notice
from locallb.planning.service_rows import Row
from tests.cli.view.scenes import HOST, planned_scene, scene_of, trouble
from tests.cli.view.screens import shown
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.objects import node, service
from tests.support.planned_gateways import SETTINGS, plan_of

pytestmark = pytest.mark.usefixtures("same_places")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "view.md"
BROKEN, CURL = ("down",), ("slash", *"gat", "enter", "c", "c")
PASTE = 2
"""Keys in a shell: one that pastes, and Enter."""
DRAINED, UNDONE = ("slash", *"web", "enter", "d", *" --backend node-1", "enter"), ("d", "enter")
BACK = 1
"""Enter, which leads back to the view after a command."""


def gateway_scene() -> Scene:
    """Serve a Gateway by HTTP and by HTTPS beside two Services."""
    tls = {"mode": "Terminate"}
    return planned_scene(
        plan_of(
            gateway_class(),
            gateway(
                listener("http", 8080, hostname="www.shop.test"),
                listener("https", 8443, "HTTPS", hostname="www.shop.test", tls=tls),
            ),
            route(rule("/cart", backends=[backend("api")]), name="cart", hostnames=["www.shop.test"]),
            *(service(name) for name in ("api", "web")),
            node(),
            host=HOST,
            settings=replace(SETTINGS, local_certificates=True),
            authority=LocalAuthority(Fingerprint("ab"), ("test",), 20_000),
        )
    )


def test_which_service_is_broken_and_why() -> None:
    """The cause of many is the first line; the one that is broken for itself is below it, with what helps."""
    assert "40 Services: PoolExhausted, add addresses to local-lb:pools" in shown(trouble(), size=(80, 24))
    assert "demo/shop/shop-05 has no proxy now; `locallb up` starts it" in shown(trouble(), *BROKEN, size=(80, 24))


def test_a_curl_command_for_an_https_route_is_copied() -> None:
    """The key that copied the command for HTTP copies that for HTTPS next; a shell runs it as it is."""
    copied: list[str] = []
    shown(gateway_scene(), *CURL, then=lambda app: copied.append(app.clipboard))
    terms = shlex.split(copied[0])
    assert terms[0] == "curl"
    assert terms[-1] == "https://www.shop.test:8443/"
    assert any(term.startswith("www.shop.test:8443:127.77.0.") for term in terms)


def test_backends_of_a_node_are_drained_and_the_drain_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time the same key proposes to undo it."""
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(ViewApp, "suspend", lambda _app: nullcontext())
    monkeypatch.setattr(StackActions, "run", lambda _actions, terms: ran.append(tuple(terms)))
    scene = planned_scene(plan_of(*(service(name) for name in ("api", "web")), node(), host=HOST))
    shown(scene, *DRAINED)
    rows = [card.view.row for card in scene.cards]
    drained = [_drained(row) if row.key.name == "web" else row for row in rows]
    shown(scene_of(drained), "slash", *"web", "enter", *UNDONE)
    assert ran == [("drain", "demo/shop/web", "--backend", "node-1"), ("drain", "demo/shop/web", "--undo")]


def _drained(row: Row) -> Row:
    return Row(row.key, row.state, row.addresses, row.ports, ordered=(Notice(DRAIN, ""),))


@pytest.mark.checkout
def test_the_page_counts_these_keys() -> None:
    """And those of the commands that do the same."""
    text = PAGE.read_text(encoding="utf-8")
    counts = [
        ("`locallb status`", len(BROKEN)),
        ("`locallb curl web --port 8443`", len(CURL) + PASTE),
        ("`locallb drain web --backend node-1`, `locallb drain web --undo`", len(DRAINED) + len(UNDONE) + 2 * BACK),
    ]
    for commands, keys in counts:
        typed = sum(len(command) + 1 for command in re.findall(r"`([^`]+)`", commands))
        assert re.search(rf"\| {re.escape(commands)} \| {typed} \| .* \| {keys} \|", text), commands
