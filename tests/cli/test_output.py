"""What a user sees: the tree, the table, the JSON; and what names from a cluster can't do to a terminal."""

from __future__ import annotations

import io
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.cli import service_output as links_module
from locallb.cli.arguments import parse
from locallb.cli.console import Out
from locallb.cli.run_output import print_steps
from locallb.cli.service_output import PortLink, links, next_step, print_services, services_json
from locallb.engine.core.events import Op, Result, StepRecord, Subject
from locallb.engine.state.values import UNKNOWN, PropertyChange
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind, Protocol
from locallb.model.objects import ServicePort, Via
from locallb.model.texts import printable
from locallb.planning.service_rows import PortRow, Row, State

KEY = ObjectKey(ClusterName("c"), "shop", "web")


def printed(rows: list[Row], *left_out: str) -> str:
    """Print a table as on a pipe."""
    stream = io.StringIO()
    print_services(Out(stream, stream), rows, left_out=left_out)
    return stream.getvalue()


def step(op: Op, kind: str, name: str, parent: str = "", *changes: PropertyChange) -> StepRecord:
    """Make a step whose URN is its type and name."""
    return StepRecord(op, Subject(f"{kind}::{name}", f"locallb:index:{kind}", name, parent), changes)


def test_the_table_is_aligned_and_names_the_next_step() -> None:
    """One row a Service; reasons in words below; a command to try."""
    rows = [
        Row(KEY, State.SERVING, (ip_address("127.77.0.5"),), (PortRow(ServicePort(8080), State.SERVING),)),
        Row(ObjectKey(ClusterName("c"), "shop", "x"), State.REJECTED, reason="InUse", message="c/shop/x: taken"),
    ]
    assert printed(rows).splitlines() == [
        "SERVICE      ADDRESS      PORTS      STATE      REASON",
        "c/shop/web   127.77.0.5   8080/TCP   serving",
        "c/shop/x     -            -          rejected   InUse",
        "",
        "! c/shop/x: taken",
        "",
        "Try: curl http://127.77.0.5:8080/",
    ]


def test_next_step_for_a_gateway_is_one_of_its_routes() -> None:
    """An address alone is answered 404, or not by HTTP; where there is a Service that is tried."""
    ports = (PortRow(ServicePort(8443), State.SERVING),)
    gateway = Row(KEY._replace(kind=ObjectKind.GATEWAY), State.SERVING, (ip_address("127.77.0.4"),), ports)
    assert printed([gateway]).splitlines()[-1] == "Try: `locallb status c/gateways/shop/web`"
    service = Row(KEY, State.SERVING, (ip_address("127.77.0.5"),), ports)
    assert printed([gateway, service]).splitlines()[-1] == "Try: curl -k https://127.77.0.5:8443/"


def balancer(name: str, *ports: ServicePort, state: State = State.SERVING) -> Row:
    """Make a Service whose ports serve, the last one only where all of it does."""
    states = [State.SERVING] * (len(ports) - 1) + [state]
    shown = tuple(map(PortRow, ports, states))
    return Row(KEY._replace(name=name), state, (ip_address("127.77.0.5"),), shown)


DNS = balancer("dns", ServicePort(53, name="dns-tcp"), ServicePort(53, Protocol.UDP, "dns"))
DATABASE = balancer("database", ServicePort(5432, name="postgres"))
HALF = balancer("half", ServicePort(80), ServicePort(81), state=State.DEGRADED)
SHOP = balancer("shop", ServicePort(9000, name="metrics"), ServicePort(8081, name="http"))
GATEWAY = Row(KEY._replace(kind=ObjectKind.GATEWAY), State.SERVING, SHOP.addresses, SHOP.ports)


def test_of_many_services_only_those_before_the_proposed_one_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this host's resolver knows a name is read from files, for each."""
    checked: list[str] = []

    def counting(row: Row) -> tuple[PortLink, ...]:
        checked.append(row.key.name)
        return links(row)

    monkeypatch.setattr(links_module, "links", counting)
    assert next_step([DNS, SHOP, *[HALF] * 10_000]) == "curl http://127.77.0.5:8081/"
    assert checked == ["dns", "shop"]


@pytest.mark.parametrize(
    ("rows", "proposed"),
    [
        ([DNS, HALF, DATABASE, SHOP, GATEWAY], "curl http://127.77.0.5:8081/"),
        ([DNS, HALF, DATABASE, GATEWAY], "`locallb status c/gateways/shop/web`"),
        ([DATABASE, DNS, HALF], "127.77.0.5:5432"),
        ([DNS], "127.77.0.5:53"),
        ([HALF], "curl http://127.77.0.5/"),
    ],
)
def test_what_serves_wholly_and_speaks_http_is_proposed(rows: list[Row], proposed: str) -> None:
    """Rather than a name server, a database or a Service in trouble that comes first in the table."""
    assert printed(rows).splitlines()[-1] == f"Try: {proposed}"


@pytest.mark.parametrize(
    ("port", "mapped", "link"),
    [
        (80, 0, "http://a.test/"),
        (443, 0, "https://a.test/"),
        (8080, 0, "http://a.test:8080/"),
        (443, 17386, "https://a.test:17386/"),
        (80, 80, "http://a.test/"),
        (8080, 443, "http://a.test:443/"),
    ],
)
def test_a_name_that_this_hosts_resolver_knows_can_be_clicked(
    port: int, mapped: int, link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `host setup` routes its zone; the address otherwise, and never a wildcard."""
    monkeypatch.setattr(links_module, "routing_files", lambda name: [f"{tmp_path}/{name}"])
    ports, at = (PortRow(ServicePort(port, mapped=mapped), State.SERVING),), (ip_address("127.77.0.5"),)
    row = Row(KEY, State.SERVING, at, ports, names=("a.test", "*.test"))
    (tmp_path / "*.test").touch()
    curl = "curl -k " if port == 443 else "curl "
    assert printed([row]).splitlines()[-1] == f"Try: {curl}{link.replace('a.test', '127.77.0.5')}"
    (tmp_path / "a.test").touch()
    assert printed([row]).splitlines()[-1] == f"Try: {link}"


def test_the_table_says_which_ports_go_straight_to_pods() -> None:
    """While they serve; NodePorts are what everybody expects."""
    ports = [PortRow(ServicePort(n), State.SERVING, via=via) for n, via in enumerate(Via, 1)]
    waiting = PortRow(ServicePort(5), State.PENDING, via=Via.PODS)
    reported = printed([Row(KEY, State.DEGRADED, (ip_address("127.77.0.5"),), (*ports, waiting))])
    assert "1/TCP→pods 2/TCP 3/TCP→api 4/TCP 5/TCP(pending)" in reported


def test_of_many_ports_the_first_are_shown_and_those_in_trouble_before_them() -> None:
    """A Service of a thousand ports has a line as any other one; JSON has all of them."""
    ports = [PortRow(ServicePort(number), State.SERVING) for number in range(1, 1001)]
    ports[900] = PortRow(ServicePort(901), State.PENDING)
    row = Row(KEY, State.DEGRADED, (ip_address("127.77.0.5"),), tuple(ports))
    line = printed([row]).splitlines()[1]
    assert "901/TCP(pending) 1/TCP 2/TCP 3/TCP" in line
    assert "9/TCP and 990 more" in line
    assert len(line) < 200
    (document,) = services_json([row])
    assert len(document["ports"]) == 1000  # type: ignore[arg-type]


def test_status_lists_left_out_services_below_the_table() -> None:
    """Below the table; an empty one would look like a mistake."""
    reported = "Nothing to serve.", "1 Service left out: class foo/bar"
    assert printed([], *reported).splitlines() == list(reported)
    row = Row(KEY, State.PENDING, reason="NoBackends", message="none")
    assert printed([row], reported[1]).splitlines()[2:] == ["", "! none", reported[1]]


def test_only_the_first_of_many_sentences_are_shown() -> None:
    """What is wrong with a thousand Services fits on a screen; the rest is counted."""
    rows = [Row(ObjectKey(ClusterName("c"), "n", str(n)), State.REJECTED, message=f"why {n}") for n in range(25)]
    lines = printed(rows).splitlines()
    assert lines[-2:] == ["! why 19", "  and 5 more; `locallb status --json` has all"]


def test_services_with_one_cause_are_one_row_and_one_sentence() -> None:
    """By the reason and its remedy, so that others stay in sight; a few of one cause have a row and a sentence each."""
    full, remedy = "gets no IPv4 address: all of pool default is taken", "add addresses to local-lb:pools"
    serving = balancer("web", ServicePort(80, name="http"))
    keys = [KEY._replace(name=f"s{number}") for number in range(34)]
    rejected = [Row(key, State.REJECTED, reason="PoolExhausted", message=f"{key} {full}; {remedy}") for key in keys]
    assert printed([serving, *rejected]).splitlines() == [
        "SERVICE       ADDRESS      PORTS    STATE      REASON",
        "c/shop/web    127.77.0.5   80/TCP   serving",
        "34 Services   -            -        rejected   PoolExhausted",
        "",
        f"! 34 Services: PoolExhausted, {remedy}; first: c/shop/s0 {full}",
        "",
        "Try: curl http://127.77.0.5/",
    ]
    assert printed(rejected[:2]).count(full) == 2
    down = [
        Row(key, State.DEGRADED, serving.addresses, (), "BackendsDown", f"{key}: {number} is closed; start it")
        for number, key in enumerate(keys)
    ]
    assert [line.split()[0] for line in printed(down).splitlines()[1:35]] == [str(key) for key in keys]
    assert printed(down).splitlines()[36:] == ["! 34 Services: BackendsDown, start it; first: c/shop/s0: 0 is closed"]


def test_a_long_table_is_not_cut_on_a_pipe() -> None:
    """Scripts get whole names."""
    long = "x" * 300
    row = Row(ObjectKey(ClusterName(long), "n", "n"), State.PENDING)
    assert f"{long}/n/n" in printed([row])


def test_the_json_has_the_documented_fields() -> None:
    """The contract of `status --json`."""
    row = Row(
        KEY,
        State.DEGRADED,
        (ip_address("127.77.0.5"), ip_address("fd00::5")),
        (PortRow(ServicePort(53, Protocol.UDP), State.PENDING, "NoBackends", "none is ready"),),
        "NoBackends",
        "none is ready",
    )
    assert services_json([row]) == [
        {
            "cluster": "c",
            "namespace": "shop",
            "name": "web",
            "kind": "services",
            "state": "degraded",
            "addresses": ["127.77.0.5", "fd00::5"],
            "ports": [
                {
                    "port": 53,
                    "protocol": "UDP",
                    "state": "pending",
                    "via": "",
                    "reason": "NoBackends",
                    "message": "none is ready",
                    "help": "reasons.md#nobackends",
                }
            ],
            "reason": "NoBackends",
            "message": "none is ready",
            "help": "reasons.md#nobackends",
        }
    ]


@pytest.mark.parametrize("evil", ["\x1b[31mred", "a\nb", "\x07", "\u202eright to left", "\r\x00"])
def test_names_cannot_drive_the_terminal(evil: str) -> None:
    """Control characters are shown, not obeyed."""
    assert printable(evil).isprintable()
    row = Row(ObjectKey(ClusterName("c"), "n", evil), State.PENDING, message=evil)
    assert all(line.isprintable() for line in printed([row]).splitlines())


def test_the_tree_shows_changes_below_their_parents_and_json_by_its_leaves() -> None:
    """Unchanged parents are shown for orientation; unchanged resources and derived digests are not."""
    old, new = '{"port": 1, "same": 2, "version_info": "a"}', '{"port": 7, "same": 2, "version_info": "b"}'
    config = PropertyChange("files.lds.json", "update", old, new)
    result = Result(
        ok=True,
        changes={Op.UPDATE: 1, Op.SAME: 2, Op.DELETE: 1},
        steps=(
            step(Op.SAME, "Proxy", "web"),
            step(Op.UPDATE, "ProxyConfig", "web", "Proxy::web", config),
            step(Op.SAME, "EnvoyProcess", "web", "Proxy::web"),
            step(Op.DELETE, "LoadBalancer", "old"),
        ),
    )
    stream = io.StringIO()
    print_steps(Out(stream, stream), result, planned=True)
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "    Proxy web",
        " ~  └─ ProxyConfig web  update",
        "            files.lds.json.port: 1 => 7",
        " -  LoadBalancer old  delete",
        "Resources: ~ 1 to update, - 1 to delete, 2 unchanged",
    ]


def test_a_value_that_is_not_known_yet_is_said_in_words() -> None:
    """Alone and within a text; never by the engines' own sign for it."""
    unknown = [
        PropertyChange("process", "update", "7@1", UNKNOWN),
        PropertyChange("place", "update", "7@1", f"{UNKNOWN}@2"),
    ]
    result = Result(ok=True, changes={Op.UPDATE: 1}, steps=(step(Op.UPDATE, "Reachable", "web", "", *unknown),))
    stream = io.StringIO()
    print_steps(Out(stream, stream), result, planned=True)
    assert [line.strip() for line in stream.getvalue().splitlines()][1:3] == [
        'process: "7@1" => (known after the update)',
        'place: "7@1" => "(known after the update)@2"',
    ]


def test_options_may_stand_before_and_after_the_command() -> None:
    """`locallb --stack x up` and `locallb up --stack x` are the same."""
    assert parse(["--stack", "x", "up", "-y"]) == parse(["up", "--stack", "x", "--yes"])
    assert parse(["status"]).stack == "dev"


def test_an_unknown_command_is_a_usage_error() -> None:
    """Exit code 2, as argparse does."""
    with pytest.raises(SystemExit) as remaining:
        parse(["upp"])
    assert remaining.value.code == 2
