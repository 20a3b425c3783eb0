"""What the terminal view lists: found, grouped, sorted and written by pure functions."""

from __future__ import annotations

import random
from collections import Counter
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from locallb.cli.failures import Refused
from locallb.cli.view.listing import (
    Card,
    Group,
    Grouping,
    Item,
    Line,
    Query,
    Rate,
    Sorting,
    card,
    columns,
    command_about,
    cropped,
    explanation,
    fitted,
    head_lines,
    line_parts,
    listing,
    of_object,
    rates,
    wrapped,
)
from locallb.cli.watching.board import View
from locallb.cli.watching.log import LogLevel, LogRecord
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.planning.notices import DRAIN, FAULT, Notice
from locallb.planning.service_rows import Row, State
from locallb.traffic.figures import Counts, TrafficRow, UpstreamFigures
from tests.cli.view.scenes import HOSTILE, calm, hostile, scene_of, trouble
from tests.support.watch_story import key

NAMES = st.sampled_from(["web", "api", "postgres", HOSTILE, "a" * 200])
ROWS = st.builds(
    Row,
    st.builds(
        ObjectKey,
        st.sampled_from([ClusterName("kind"), ClusterName("k3d")]),
        st.sampled_from(["shop", "default", ""]),
        NAMES,
        st.sampled_from([ObjectKind.SERVICE, ObjectKind.GATEWAY, ObjectKind.INGRESS]),
    ),
    st.sampled_from(State),
    st.lists(st.sampled_from([ip_address("127.77.0.1"), ip_address("::1")]), max_size=2).map(tuple),
    reason=st.sampled_from(["", "PoolExhausted", "NoBackends", "Bad"]),
    message=st.sampled_from(["", "no address; add some", "nothing answers", HOSTILE]),
    names=st.lists(NAMES, max_size=2).map(tuple),
)
TABLES = st.lists(ROWS, max_size=30, unique_by=lambda row: (row.key, row.reason)).map(
    lambda table: tuple(card(View(row)) for row in table)
)
QUERIES = st.builds(
    Query,
    st.sampled_from(["", "web", "WEB shop", "rejected", "nothing has this", "["]),
    st.sampled_from(Grouping),
    st.sampled_from(Sorting),
    st.frozensets(st.sampled_from(["kind", "k3d", "kind/shop", "PoolExhausted; add some", "Bad; nothing answers"])),
)
FLOWING = {ObjectKey(ClusterName("kind"), "shop", "web"): Rate(3, 1, 1)}


def cards_of(lines: tuple[Line, ...]) -> list[Card]:
    """Return the load balancers of lines, with those that a closed group hides."""
    hidden = [each for line in lines if isinstance(line, Group) and not line.is_open for each in line.cards]
    return [line.card for line in lines if isinstance(line, Item)] + hidden


@given(TABLES, QUERIES)
def test_each_load_balancer_that_is_found_is_there_once(cards: tuple[Card, ...], query: Query) -> None:
    """In its own line or counted in a closed group, whatever is asked for; the order of the table doesn't matter."""
    lines = listing(cards, FLOWING, query)
    words = query.text.lower().split()
    expected = [each.id for each in cards if all(word in each.found_by for word in words)]
    assert Counter(each.id for each in cards_of(lines)) == Counter(expected)
    shuffled = random.Random(1).sample(cards, len(cards))
    assert listing(shuffled, FLOWING, query) == lines
    assert len({line.id for line in lines}) == len(lines)


@given(TABLES, QUERIES, st.integers(1, 220))
def test_no_line_exceeds_the_terminal_or_drives_it(cards: tuple[Card, ...], query: Query, width: int) -> None:
    """Each has exactly the cells that there are, and only printable characters."""
    lines = listing(cards, FLOWING, query)
    shown = columns(lines, FLOWING, width)
    for line in lines:
        parts = line_parts(line, shown, width)
        text = "".join(text for text, _ in parts)
        assert cell_len(text) == width
        assert text.isprintable()
        assert explanation(line).isprintable()
    for parts in head_lines(scene_of([], warnings=(HOSTILE,) * 5), query, lines, shown, width):
        assert "".join(text for text, _ in cropped(parts, width)).isprintable()


@given(st.lists(st.text(max_size=40), max_size=4), st.integers(1, 60), st.integers(0, 20))
def test_wrapped_lines_lose_nothing_but_spaces(texts: list[str], width: int, indent: int) -> None:
    """Each character that can be shown is there in order; lines are as wide as there is room."""
    parts = tuple((text, "") for text in texts)
    lines = ["".join(text for text, _ in line) for line in wrapped(parts, width, indent)]
    whole = "".join(text for text, _ in wrapped_once(parts))
    assert "".join("".join(lines).split()) == "".join(whole.split())
    assert all(cell_len(line) <= max(width, indent + 2) for line in lines)


def wrapped_once(parts: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    (line,) = wrapped(parts, 10_000)
    return line


def test_one_cause_of_many_is_one_line_with_its_remedy() -> None:
    """At first, closed; below it those that need attention, then those that serve."""
    scene = trouble()
    lines = listing(scene.cards, {}, Query())
    group, *items = lines
    assert isinstance(group, Group)
    assert (len(group.cards), group.is_open, group.state) == (40, False, State.REJECTED)
    assert group.title.startswith("40 Services: PoolExhausted, add addresses to local-lb:pools")
    assert [item.card.view.row.state for item in items if isinstance(item, Item)] == [
        State.PENDING,
        *[State.SERVING] * 11,
    ]
    opened = listing(scene.cards, {}, Query(toggled=frozenset({group.id})))
    assert len(opened) == 53
    assert [item.is_within for item in opened[1:] if isinstance(item, Item)] == [True] * 40 + [False] * 12
    assert not any(isinstance(line, Group) for line in listing(scene.cards, {}, Query(grouping=Grouping.NOTHING)))


@pytest.mark.parametrize(
    ("grouping", "titles"),
    [
        (Grouping.CLUSTER, ["demo  4 serving"]),
        (Grouping.NAMESPACE, ["demo/shop  4 serving"]),
        (Grouping.REASON, []),
    ],
)
def test_groups_by_place_are_open_and_count_states(grouping: Grouping, titles: list[str]) -> None:
    lines = listing(calm().cards, {}, Query(grouping=grouping))
    assert [line.title for line in lines if isinstance(line, Group)] == titles
    assert sum(isinstance(line, Item) for line in lines) == 4
    closed = listing(calm().cards, {}, Query(grouping=grouping, toggled=frozenset({"demo", "demo/shop"})))
    assert sum(isinstance(line, Item) for line in closed) == (0 if titles else 4)


@pytest.mark.parametrize(
    ("sorting", "names"),
    [
        (Sorting.URGENCY, ["web", "api", "postgres", "web"]),
        (Sorting.NAME, ["api", "postgres", "web", "web"]),
        (Sorting.RATE, ["web", "postgres", "api", "web"]),
    ],
)
def test_lines_are_sorted(sorting: Sorting, names: list[str]) -> None:
    scene = calm()
    lines = listing(scene.cards, scene.rates, Query(sorting=sorting))
    found = [line.card.view.row.key.name for line in lines if isinstance(line, Item)]
    assert sorted(found) == sorted(names)
    if sorting is not Sorting.URGENCY:
        assert found == names


def test_lines_are_sorted_by_address_with_those_without_one_last() -> None:
    lines = listing(trouble().cards, {}, Query(grouping=Grouping.NOTHING, sorting=Sorting.ADDRESS))
    addresses = [line.card.view.row.addresses for line in lines if isinstance(line, Item)]
    assert all(addresses[:12])
    assert addresses[:12] == sorted(addresses[:12])
    assert not any(addresses[12:])


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 4), ("web", 2), ("GATEWAYS", 1), ("5432", 1), ("www.shop", 0), ("serving web gateways", 1), ("[", 0)],
)
def test_a_filter_finds_all_of_its_words(text: str, count: int) -> None:
    """In names, addresses, ports, states and reasons, in any case."""
    assert len(listing(calm().cards, {}, Query(text))) == count


def test_narrow_terminals_have_fewer_columns() -> None:
    scene = calm()
    lines = listing(scene.cards, scene.rates, Query())
    heads = {width: [each.head for each in columns(lines, scene.rates, width)] for width in (24, 40, 80, 120, 200)}
    assert heads[24] == ["NAME", "STATE"]
    assert heads[40] == ["NAME", "STATE", "REASON"]
    assert heads[80] == ["NAME", "STATE", "ADDRESS", "RATE", "REASON"]
    assert heads[120] == ["NAME", "STATE", "ADDRESS", "RATE", "PORTS", "REASON"]
    assert heads[200] == ["NAME", "STATE", "ADDRESS", "RATE", "PORTS", "NAMES", "REASON"]
    assert "RATE" not in [each.head for each in columns(lines, {}, 200)]


def test_columns_begin_at_the_same_cells_beside_wide_characters() -> None:
    """A character of East Asia takes two; no name is cut for that."""
    names = ("表表表表表表表表表表", "web", "ﷺ")
    scene = scene_of(Row(key("x")._replace(name=name), State.SERVING, names=(name,)) for name in names)
    lines = listing(scene.cards, {}, Query())
    made = columns(lines, {}, 200)
    texts = ["".join(text for text, _ in line_parts(line, made, 200)) for line in lines]
    assert len({cell_len(text[: text.index("serving")]) for text in texts}) == 1
    assert not any("…" in text for text in texts)


@pytest.mark.parametrize(
    ("text", "width", "written"), [("web", 5, "web  "), ("web", 2, "w…"), ("表表", 3, "表…"), ("web", 0, "")]
)
def test_a_text_is_cut_or_filled(text: str, width: int, written: str) -> None:
    assert fitted(text, width) == written


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(), ""),
        (Rate(12.4), "12 req/s"),
        (Rate(0, 0.25), "0.2 conn/s"),
        (Rate(2, 1, 0.5), "2 req/s, 0.5 failed"),
        (Rate(failures=1), "1 failed"),
    ],
)
def test_a_rate_is_short(rate: Rate, text: str) -> None:
    assert rate.text == text


def test_rates_are_of_load_balancers_where_something_flows() -> None:
    """Of all ports together; a proxy that doesn't answer counts nothing."""

    def row(name: str, counts: Counts, *, answers: bool = True, is_http: bool = False) -> TrafficRow:
        return TrafficRow(key(name), ("80/TCP",), is_http, answers, UpstreamFigures({"a": counts}))

    table = [
        row("web", Counts(4, 2, 0, 8, 6), is_http=True),
        row("web", Counts(2, 2)),
        row("idle", Counts()),
        row("gone", Counts(5), answers=False),
    ]
    assert rates(table, 2.0) == {key("web"): Rate(4.0, 3.0, 4.0)}


def test_records_are_of_the_named_object_latest_first() -> None:
    def record(number: int, **fields: object) -> LogRecord:
        return LogRecord(number, LogLevel.INFO, "service", str(number), fields)

    table = [
        record(1, service="demo/shop/web"),
        record(2, service="demo/shop/web2"),
        record(3, services=["demo/shop/web"]),
    ]
    assert [each.sentence for each in of_object(table, key("web"))] == ["3", "1"]


@pytest.mark.parametrize(
    ("command", "ordered", "kind", "text"),
    [
        ("drain", (), ObjectKind.SERVICE, "drain demo/shop/web"),
        ("drain", (Notice(DRAIN, ""),), ObjectKind.SERVICE, "drain demo/shop/web --undo"),
        ("fault", (), ObjectKind.SERVICE, "fault demo/shop/web --refuse 10% --for 5m"),
        ("fault", (), ObjectKind.GATEWAY, "fault demo/gateways/shop/web --status 503:10% --for 5m"),
        ("fault", (Notice(FAULT, ""),), ObjectKind.SERVICE, "fault demo/shop/web --undo"),
    ],
)
def test_a_command_is_proposed_or_what_undoes_it(
    command: str, ordered: tuple[Notice, ...], kind: ObjectKind, text: str
) -> None:
    row = Row(key("web")._replace(kind=kind), State.SERVING, ordered=ordered)
    assert command_about(command, row) == text


def test_a_name_that_no_command_can_have_is_refused() -> None:
    """Others are quoted where that is needed, which names of Kubernetes don't."""
    (first, *_) = hostile().cards
    with pytest.raises(Refused, match="can't be written in a command"):
        command_about("drain", first.view.row)
    assert command_about("drain", Row(key("a b"), State.SERVING)) == "drain 'demo/shop/a b'"
