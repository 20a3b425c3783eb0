"""Parts of Gateways and Ingresses that are refused, where a person looks: log, `status`, table, page, metrics."""

from __future__ import annotations

import io
import json

import pytest

from locallb.cli.console import Out
from locallb.cli.service_output import detail_json, details, print_detail, print_services, services_json
from locallb.cli.view.listing import Scene
from locallb.cli.view.overview import watched
from locallb.cli.watching.board import Board, Relay
from locallb.cli.watching.lanes import lane, subjects
from locallb.cli.watching.log import Narrator, plain
from locallb.cli.watching.metrics import Metrics
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation, State, rows
from locallb.storage.paths import shipped
from locallb.watch.events import Cause, Mark, Planned
from tests.support.gateway_objects import (
    JsonObject,
    backend,
    gateway,
    gateway_class,
    listener,
    parent,
    route,
    rule,
    service,
)
from tests.support.ingress_objects import ingress, ingress_class, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.objects import node
from tests.support.planned_gateways import SETTINGS, snapshot

PLAIN = listener("plain")
SECURED = listener("secured", 443, "HTTPS", tls={"certificateRefs": [{"name": "absent"}]})
TO_API = rule(backends=[backend("api")])
FINE = [gateway_class(), gateway(PLAIN), route(TO_API), service("api"), node()]
REFUSED: dict[str, tuple[list[JsonObject], str]] = {
    "a listener of an unknown protocol": (
        [gateway(PLAIN, listener("odd", 81, "example.test/odd"))],
        "demo/gateways/shop/web listener odd: UnsupportedProtocol",
    ),
    "a Secret that is missing": (
        [gateway(PLAIN, SECURED)],
        "demo/gateways/shop/web listener secured: InvalidCertificateRef",
    ),
    "a route to a Service that is missing": (
        [route(rule(backends=[backend("gone")]), name="lost")],
        "demo: HTTPRoute shop/lost: BackendNotFound",
    ),
    "a route to a listener that is missing": (
        [route(TO_API, name="astray", parentRefs=[parent("web", sectionName="other")])],
        "demo: HTTPRoute shop/astray at demo/gateways/shop/web: NoMatchingParent",
    ),
    "a rule with a filter that isn't served": (
        [route(rule(backends=[backend("api")], filters=[{"type": "Unknown"}]), TO_API, name="half")],
        "demo: HTTPRoute shop/half: ",
    ),
    "an Ingress whose Secret is missing": (
        [
            ingress_class(),
            ingress(ingress_rule(path(), host="a.test"), name="a", tls=[{"hosts": ["a.test"], "secretName": "no"}]),
        ],
        "demo: Ingress shop/a: ",
    ),
}


def _planned(*documents: JsonObject) -> Planned:
    """Plan what serves with these in addition, or in place of an object of the same name."""
    named = {(one["kind"], one["metadata"]["name"]): one for one in (*FINE, *documents)}
    return Planned(make_plan(snapshot(list(named.values())), SETTINGS), (Mark(Cause.SOURCE, "demo"),), 0.0, ())


def _logged(*plans: Planned) -> list[list[str]]:
    """Return the lines that each plan adds to the log, without times."""
    narrator, lines = Narrator(), []
    for planned in plans:
        relay = Relay()
        relay.listen(planned)
        lines.append([plain(record).partition(" ")[2] for record in narrator.report_to(relay.take(0), [])])
    return lines


def _shown(plan: Plan) -> tuple[str, list[dict[str, object]]]:
    """Return what `status NAME` prints of all that is planned, and its JSON."""
    stream = io.StringIO()
    of_each = details(rows(plan, {}), plan)
    for detail in of_each:
        print_detail(Out(stream, stream), detail)
    return stream.getvalue(), [{**detail_json(detail), **services_json([detail.row])[0]} for detail in of_each]


def _board(planned: Planned) -> Board:
    """Return the board of a watch whose proxies have everything that was planned."""
    board = Board(planned)
    for placement in planned.plan.placements:
        listening = frozenset(listener.name for port in placement.ports for listener in port.listeners)
        board.observed = {**board.observed, placement.proxy: Observation(listening)}
    return board


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_logged_when_it_begins_and_when_it_ends(what: str) -> None:
    """Not again with each plan in between."""
    documents, sentence = REFUSED[what]
    fine, refused = _planned(), _planned(*documents)
    before, began, still, ended, after = _logged(fine, refused, refused, fine, fine)
    (reported,) = began
    assert reported.startswith(f"warning: {sentence}")
    assert ended == [f"no longer: {reported.removeprefix('warning: ')}"]
    assert (before, still, after) == ([], [], [])


@pytest.mark.parametrize("what", REFUSED)
def test_status_of_a_gateway_or_a_class_says_what_of_it_is_refused(what: str) -> None:
    """In words, and as JSON, where its schema has it."""
    documents, sentence = REFUSED[what]
    text, of_each = _shown(_planned(*documents).plan)
    (refused,) = (detail["refused"] for detail in of_each if "refused" in detail)
    assert isinstance(refused, list)
    assert [one[: len(sentence)] for one in refused] == [sentence]
    assert text.count(sentence) == 1
    schema = json.loads(shipped("docs/schemas/status.schema.json").read_text(encoding="utf-8"))
    assert {name for detail in of_each for name in detail} <= schema["$defs"]["service"]["properties"].keys()


@pytest.mark.parametrize("what", REFUSED)
def test_every_view_shows_that_something_is_refused(what: str) -> None:
    """A listener is a port or a name that nobody gets, so its Gateway is degraded; a route has a status of its own."""
    documents, sentence = REFUSED[what]
    board = _board(_planned(*documents))
    views = board.views()
    (view,) = [view for view in views if view.row.notices or view.row.state is not State.SERVING]
    is_listener = " listener " in sentence
    state, code = (State.DEGRADED, "ListenersNotValid") if is_listener else (State.SERVING, "PartsRefused")
    assert (view.row.state, view.row.codes) == (state, (code,))
    (table,) = [line for line in _table(board) if code in line]
    assert view.row.key.shown in table
    assert f" {state} " in table
    drawn = lane(subjects(views, _planned(*documents).plan)[str(view.row.key)])
    assert (drawn["reason"] or drawn["notices"][0][0]) == code  # type: ignore[index]
    assert (drawn["message"] or drawn["notices"][0][1]).startswith(sentence)  # type: ignore[index, union-attr]
    (shown,) = [each for each in watched(Scene("dev"), board, views, (), {}).cards if each.view == view]
    assert shown.why.startswith(f"{code}: ")
    metrics = Metrics(lambda: board.observed)
    assert board.planned
    metrics.listen(board.planned)
    assert f'locallb_service_problems{{reason="{code}"}} 1.0' in metrics.text("")[0].decode()


def test_state_of_a_gateway_tells_what_fails_at_its_ports_before_a_refused_listener() -> None:
    """One that isn't deployed is pending, whatever is refused of it."""
    (gateway_row,) = rows(_planned(gateway(PLAIN, SECURED)).plan, {})
    assert (gateway_row.state, gateway_row.reason) == (State.PENDING, "NotDeployed")
    assert gateway_row.codes == ("NotDeployed", "PartsRefused")


def _table(board: Board) -> list[str]:
    stream = io.StringIO()
    print_services(Out(stream, stream), [view.row for view in board.views()])
    return stream.getvalue().splitlines()


def test_what_is_served_has_nothing_refused() -> None:
    """Neither in words nor in JSON."""
    text, of_each = _shown(_planned().plan)
    assert all("refused" not in detail for detail in of_each)
    assert "refused" not in text


def test_of_many_at_once_the_first_are_logged_and_the_rest_are_counted() -> None:
    """Thousands of lines in one moment help nobody; `status` has them all."""
    lost = [route(rule(backends=[backend("gone")]), name=f"lost{number:03d}") for number in range(120)]
    began, ended = _logged(_planned(*lost), _planned())
    assert len(began) == len(ended) == 51
    assert began[-1] == "warning: 70 more; `locallb status` lists all"
