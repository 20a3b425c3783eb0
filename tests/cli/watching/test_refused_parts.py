"""Parts of Gateways and Ingresses that are refused, where a person looks: the log of `watch`, and `status NAME`."""

from __future__ import annotations

import io
import json

import pytest

from locallb.cli.console import Out
from locallb.cli.display.service_detail import detail_json, details, print_detail
from locallb.cli.watching.log.lines import plain
from locallb.cli.watching.log.records import Narrator
from locallb.cli.watching.relay import Relay
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.status import rows
from locallb.storage.paths import shipped
from locallb.watch.events import Cause, Mark, Planned
from tests.gateway.api import JsonObject, backend, gateway, gateway_class, listener, parent, route, rule, service
from tests.ingress.api import ingress, ingress_class, path
from tests.ingress.api import rule as ingress_rule
from tests.planning.gateways.test_gateway_memory import snapshot
from tests.planning.objects import node
from tests.planning.statuses.test_gateway_statuses import SETTINGS

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
        lines.append([plain(record).partition(" ")[2] for record in narrator.tell(relay.take(0), [])])
    return lines


def _shown(plan: Plan) -> tuple[str, list[dict[str, object]]]:
    """Return what `status NAME` prints of all that is planned, and its JSON."""
    stream = io.StringIO()
    of_each = details(rows(plan, {}), plan)
    for detail in of_each:
        print_detail(Out(stream, stream), detail)
    return stream.getvalue(), [detail_json(detail) for detail in of_each]


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_logged_when_it_begins_and_when_it_ends(what: str) -> None:
    """Not again with each plan in between."""
    documents, sentence = REFUSED[what]
    fine, refused = _planned(), _planned(*documents)
    before, began, still, ended, after = _logged(fine, refused, refused, fine, fine)
    (told,) = began
    assert told.startswith(f"warning: {sentence}")
    assert ended == [f"no longer: {told.removeprefix('warning: ')}"]
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
