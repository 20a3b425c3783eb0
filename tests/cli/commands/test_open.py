"""The command `open`: which URL a port has, which one is opened, and when nothing is."""

from __future__ import annotations

import io
import os
import sys
import webbrowser
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any, cast

import pytest

from locallb.cli import service_output as links_module
from locallb.cli.arguments import parse
from locallb.cli.commands import status as open_address
from locallb.cli.console import Out
from locallb.cli.failures import Exit, Refused
from locallb.cli.service_output import links
from locallb.model.http_serving import Chain, HttpListener, HttpRoutes, TcpForward
from locallb.model.identities import ClusterName, IPAddress, ObjectKey, ObjectKind, Protocol
from locallb.model.objects import ServicePort
from locallb.planning.planned import PlannedPort
from locallb.planning.service_rows import PortRow, Row, State
from tests.cli.commands.conftest import play  # noqa: F401 - a fixture
from tests.support.stages import Stage

KEY = ObjectKey(ClusterName("c"), "shop", "web")
API = KEY._replace(name="api")
GATEWAY = KEY._replace(kind=ObjectKind.GATEWAY)
V4, V6 = ip_address("127.77.0.5"), ip_address("fd00::5")
LOCAL = ip_address("127.0.0.1")
DNS = ServicePort(53, Protocol.UDP)


def row(*ports: ServicePort, key: ObjectKey = KEY, at: IPAddress = V4, names: tuple[str, ...] = ()) -> Row:
    return Row(key, State.SERVING, (at,), tuple(PortRow(port, State.SERVING) for port in ports), names=names)


def pending(message: str) -> Row:
    """Make a row whose port doesn't serve yet."""
    return Row(KEY, State.PENDING, (V4,), (PortRow(ServicePort(80), State.PENDING, "NotDeployed", message),))


@pytest.mark.parametrize(
    ("port", "at", "url"),
    [
        (ServicePort(80), V4, "http://127.77.0.5/"),
        (ServicePort(443), V4, "https://127.77.0.5/"),
        (ServicePort(8443), V4, "https://127.77.0.5:8443/"),
        (ServicePort(9000), V4, "127.77.0.5:9000"),
        (ServicePort(9000, name="http-admin"), V4, "http://127.77.0.5:9000/"),
        (ServicePort(9000, target_port="web"), V4, "http://127.77.0.5:9000/"),
        (ServicePort(443, name="http"), V4, "http://127.77.0.5:443/"),
        (ServicePort(80, name="https"), V4, "https://127.77.0.5:80/"),
        (ServicePort(443, app_protocol="http"), V4, "http://127.77.0.5:443/"),
        (ServicePort(9000, app_protocol="HTTPS", name="http"), V4, "https://127.77.0.5:9000/"),
        (ServicePort(80, app_protocol="kubernetes.io/wss"), V4, "https://127.77.0.5:80/"),
        (ServicePort(80, app_protocol="kubernetes.io/h2c"), V4, "127.77.0.5:80"),
        (ServicePort(8080, name="postgres"), V4, "127.77.0.5:8080"),
        (ServicePort(8080, name="tcp-8080"), V4, "http://127.77.0.5:8080/"),
        (ServicePort(5432), V6, "[fd00::5]:5432"),
        (ServicePort(5432, mapped=80), LOCAL, "127.0.0.1:80"),
        (ServicePort(9000, name="https"), V4, "https://127.77.0.5:9000/"),
        (ServicePort(9000, name="https-admin"), V4, "https://127.77.0.5:9000/"),
        (ServicePort(80), V6, "http://[fd00::5]/"),
        (ServicePort(8080), V6, "http://[fd00::5]:8080/"),
        (ServicePort(80, mapped=17386), LOCAL, "http://127.0.0.1:17386/"),
        (ServicePort(443, mapped=17387), LOCAL, "https://127.0.0.1:17387/"),
        (ServicePort(8080, mapped=443), LOCAL, "http://127.0.0.1:443/"),
        (ServicePort(80), ip_address("fe80::1%$(id)"), "http://[fe80::1]/"),
    ],
)
def test_a_port_has_a_url(port: ServicePort, at: IPAddress, url: str) -> None:
    """By its own number and name, where clients find it; a zone of an address, which is any text, is left out."""
    assert [link.url for link in links(row(port, at=at))] == [url]


@pytest.mark.parametrize(
    ("chain", "number", "scheme"),
    [
        (Chain(HttpRoutes(())), 8443, "http"),
        (Chain(TcpForward(()), ("a.test",), by_tls=True), 9000, "https"),
        (Chain(TcpForward(())), 443, ""),
    ],
)
def test_a_listener_says_what_is_spoken(chain: Chain, number: int, scheme: str) -> None:
    """Whatever the number of its port."""
    planned = PlannedPort(ServicePort(number), (HttpListener(V4, number, (chain,)),))
    (link,) = links(row(ServicePort(number), key=GATEWAY), (planned,))
    assert link.url == (f"{scheme}://127.77.0.5:{number}/" if scheme else f"127.77.0.5:{number}")


@pytest.mark.parametrize(
    ("names", "routed", "host"),
    [
        (("a.test", "*.test"), "routed", "a.test"),
        (("a.test",), "", "127.77.0.5"),
        (("*.test",), "routed", "127.77.0.5"),
        (("a.test;id", "$(id).test", "-x", "a test", "a_b.test"), "routed", "127.77.0.5"),
        (("a.test@evil", "b.test"), "routed", "b.test"),
    ],
)
def test_a_name_is_used_where_the_resolver_knows_it(
    names: tuple[str, ...], routed: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is one host's, and nothing but a name; the address otherwise."""
    monkeypatch.setattr(links_module, "is_routed", lambda _name: bool(routed))
    assert [link.url for link in links(row(ServicePort(80), names=names))] == [f"http://{host}/"]


def test_ports_that_look_like_the_webs_come_first() -> None:
    """Browsers have no use for the others; UDP has no URL."""
    found = links(row(ServicePort(22), DNS, ServicePort(9000, name="http"), ServicePort(443)))
    assert [link.port.port for link in found] == [9000, 443, 22]


class Opened:
    """A run of the command over rows that are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put a browser in place that only notes what it is shown."""
        self.shown: list[str] = []
        self._patch = monkeypatch
        monkeypatch.setattr(webbrowser, "open", self._note)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setenv("DISPLAY", ":0")
        self.out, self.err = io.StringIO(), io.StringIO()
        self.complaints: tuple[str, ...] = ()

    def _note(self, url: str) -> bool:
        self.shown.append(url)
        return True

    def __call__(self, line: str, *rows: Row) -> int:
        self._patch.setattr(open_address, "inspect", lambda _plan: rows)
        reading = SimpleNamespace(complaints=self.complaints)
        session = SimpleNamespace(plan=lambda **_: (reading, SimpleNamespace(placements=())))
        return open_address.open_address(cast("Any", session), parse(["open", *line.split()]), Out(self.out, self.err))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("", "http://127.77.0.5/"),
        ("web", "http://127.77.0.5/"),
        ("shop/web", "http://127.77.0.5/"),
        ("c/shop/web --port 8081", "http://127.77.0.5:8081/"),
    ],
)
def test_open_opens_the_named_or_only_service_in_the_browser(opened: Opened, line: str, url: str) -> None:
    """The only one without a name, else the one that is named; the URL is printed as well."""
    assert opened(line, row(ServicePort(5432), ServicePort(80), ServicePort(8081))) == Exit.OK
    assert (opened.shown, opened.out.getvalue()) == ([url], f"{url}\n")


def test_no_browser_is_started_for_what_is_not_known_to_speak_http(opened: Opened) -> None:
    """Its address and port are printed, and what would make a link of them."""
    assert opened("web", row(ServicePort(5432, name="postgres"))) == Exit.OK
    assert (opened.shown, opened.out.getvalue()) == ([], "127.77.0.5:5432\n")
    assert "port 5432/TCP of c/shop/web speaks HTTP; if it does, name it http or https" in opened.err.getvalue()


def test_a_mapped_port_is_known_by_both_numbers(opened: Opened) -> None:
    """Its own one, and where clients find it."""
    for number in (80, 17386):
        opened(f"web --port {number}", row(ServicePort(443, mapped=443), ServicePort(80, mapped=17386), at=LOCAL))
    assert opened.shown == ["http://127.0.0.1:17386/"] * 2


def test_open_lists_the_choices_where_there_are_several(opened: Opened) -> None:
    """And nothing is opened; a Gateway is told from a Service by its key."""
    rows = (row(ServicePort(80), key=API), row(ServicePort(80), key=GATEWAY, at=V6))
    with pytest.raises(Refused, match="name one: `locallb open c/shop/api`"):
        opened("", *rows)
    assert [line.split() for line in opened.out.getvalue().splitlines()[1:]] == [
        ["c/shop/api", "http://127.77.0.5/"],
        ["c/gateways/shop/web", "http://[fd00::5]/"],
    ]
    opened("gateways/shop/web", *rows)
    assert opened.shown == ["http://[fd00::5]/"]


@pytest.mark.parametrize(
    ("line", "rows", "sentence"),
    [
        ("", (), "nothing serves TCP now; `locallb status`"),
        ("web", (row(DNS),), "c/shop/web has no port of TCP"),
        ("web --port 81", (row(ServicePort(80)),), "has no port 81 of TCP; name one with --port: 80"),
        ("web", (pending("c/shop/web has no proxy now"),), "can't be opened yet: c/shop/web has no proxy now"),
        ("web", (Row(KEY, State.REJECTED, reason="InUse", message="taken"),), "can't be opened yet: taken"),
        ("other", (row(ServicePort(80)),), "there is no load balancer 'other'"),
    ],
)
def test_open_reports_why_a_service_cannot_be_opened(
    opened: Opened, line: str, rows: tuple[Row, ...], sentence: str
) -> None:
    """In one sentence, with what helps."""
    with pytest.raises(Refused, match=sentence):
        opened(line, *rows)
    assert opened.shown == []


def test_a_source_that_cannot_be_read_is_reported(opened: Opened) -> None:
    """What serves may be opened all the same."""
    opened.complaints = ("cluster c can't be read",)
    assert opened("", row(ServicePort(80))) == Exit.OK
    assert "cluster c can't be read" in opened.err.getvalue()
    assert opened.shown == ["http://127.77.0.5/"]


@pytest.mark.parametrize(
    ("line", "environment", "reported"),
    [
        ("--print", {"DISPLAY": ":0"}, ""),
        ("", {"DISPLAY": ":0", "SUDO_UID": "1000"}, "under sudo"),
        ("", {}, "there is no display"),
        ("", {"DISPLAY": ":0", "PATH": "/usr/bin::/bin"}, "isn't absolute"),
        ("", {"DISPLAY": ":0", "PATH": "/usr/bin:bin"}, "isn't absolute"),
    ],
)
def test_where_no_browser_can_be_shown_the_url_is_printed(
    opened: Opened, line: str, environment: dict[str, str], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And why no more; nothing where that was asked for."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if "SUDO_UID" in environment else 1000)
    monkeypatch.setattr(sys, "platform", "linux")
    assert opened(line, row(ServicePort(80))) == Exit.OK
    assert (opened.shown, opened.out.getvalue()) == ([], "http://127.77.0.5/\n")
    assert reported in opened.err.getvalue()
    assert bool(reported) == bool(opened.err.getvalue())


@pytest.mark.parametrize("terms", ["web api", "--port 0", "--port 65536", "--port x"])
def test_open_refuses_two_services_or_an_impossible_port(terms: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two at a time, or a port that there can't be."""
    with pytest.raises(SystemExit) as ended:
        parse(["open", *terms.split()])
    assert ended.value.code == Exit.USAGE
    assert "usage:" in capsys.readouterr().err


def test_a_service_that_was_never_deployed_cannot_be_opened(play: Stage) -> None:  # noqa: F811 - the fixture
    """The remedy is named."""
    done = play.run("open", "web")
    assert done.code == Exit.FAILED
    assert " up` starts it" in done.err
