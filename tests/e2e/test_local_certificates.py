"""Hosts without a Secret, served with certificates of this user's own authority by a real Envoy."""

from __future__ import annotations

import datetime as dt
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest
import yaml

from locallb.certificates import local, store
from locallb.certificates import trust_stores as stores
from locallb.model.identities import Fingerprint
from locallb.model.snapshot import LocalAuthority
from tests.e2e.https_gateways import PORT, https, served
from tests.support.browser import NETWORK_CHANGED, chromium
from tests.support.certificates import certutil
from tests.support.gateway_clients import answering, service
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, route, rule
from tests.support.ingress_objects import ingress, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.manifests import node
from tests.support.stages import CHECKOUT, Stage
from tests.support.watching import Watch, eventually

pytestmark = pytest.mark.envoy

DAYS = dt.timedelta(days=1)
MOVED = """
import datetime as dt, pathlib, sys
from locallb.certificates import store
from locallb.cli import main
from locallb.watch import loop
file = pathlib.Path(sys.argv.pop(1))
store.now = lambda: dt.datetime.now(dt.UTC) + dt.timedelta(days=int(file.read_text()))
loop.FULL_PASS = 0.2
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def data(play: Stage) -> Iterator[Path]:
    """Return where the stage's user has an authority."""
    with patch.dict(os.environ, XDG_DATA_HOME=str(play.root / "d")):
        yield play.root / "d" / "local-lb" / "ca"


def trusting(data: Path) -> ssl.SSLContext:
    """Return a client that believes this authority and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(data / store.CERTIFICATE)
    return context


def shown(address: str, host: str, data: Path) -> str:
    """Return the serial number of the certificate that a client who believes the authority sees for a host."""
    with (
        socket.create_connection((address, PORT), timeout=5) as plain,
        trusting(data).wrap_socket(plain, server_hostname=host) as client,
    ):
        return str((client.getpeercert() or {})["serialNumber"]).lower()


def resources(play: Stage) -> list[dict[str, Any]]:
    state = json.loads((play.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text())
    listed = state["checkpoint"]["latest"].get("resources", [])
    return [one for one in listed if one["type"] == "locallb:index:LocalCertificate"]


def test_a_listener_without_a_certificate_gets_one(play: Stage, data: Path) -> None:
    """Verified by the chain; by the listener's name, by names of routes and by the address where it has none."""
    listeners = https(hostname="*.shop.test"), https("every"), https("one", hostname="a.test")
    with answering("one") as one:
        hosts = ("api.shop.test", "x.y.shop.test", "other.test", "a.test")
        address = served(play, *listeners, backend_port=one, hostnames=hosts)
        for host in (*hosts, address):
            assert shown(address, host, data)
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(address, "unknown.test", data)
        connection = http.client.HTTPSConnection("a.test", PORT, context=trusting(data), timeout=5)
        connection._create_connection = lambda *_: socket.create_connection((address, PORT))  # type: ignore[attr-defined]
        with closing(connection):
            connection.request("GET", "/x")
            assert connection.getresponse().read().startswith(b"one /x")
        if curl := shutil.which("curl"):
            where = "--cacert", str(data / "ca.crt"), "--resolve", f"a.test:{PORT}:{address}"
            requested = [curl, "--silent", "--show-error", *where, f"https://a.test:{PORT}/y"]
            assert subprocess.run(requested, check=True, capture_output=True).stdout.startswith(b"one /y")
        retry = play.run("up", "--yes", "--expect-no-changes")
        assert retry.code == 0, retry.out + retry.err


def test_the_example_serves_as_documented(play: Stage, data: Path) -> None:
    """Its stack and its manifests, with a port of the test in place of the shop's; a wrong option is refused."""
    example = CHECKOUT / "examples/gateway"
    config = yaml.safe_load((example / "Pulumi.gateway.yaml").read_text())["config"]
    play.configure(certificates=config["local-lb:certificates"])
    text = (example / "manifests/gateway.yaml").read_text()
    with answering("web") as web:
        served_by = (example / "manifests/service.yaml").read_text().replace("30880", str(web))
        play.write("cluster.yaml", node(), *yaml.safe_load_all(served_by))
        play.write("gateway.yaml", *yaml.safe_load_all(text))
        play.up()
        address = str(play.run("status", "--json").json[0]["addresses"][0])
        assert shown(address, "shop.test", data)
        play.write("gateway.yaml", *yaml.safe_load_all(text.replace("certificate: local", "certificate: public")))
        done = play.run("up", "--yes")
    assert 'tls.options[local-lb.dev/certificate] is "public"; write local' in done.out + done.err


def test_an_ingress_without_a_secret_gets_one(play: Stage, data: Path) -> None:
    """For all hosts of its TLS; for those of its rules and the address where it names none; another's is its own."""
    play.configure(certificates="local", ingress={"class": "local", "http": 8080, "https": PORT})
    named: list[JsonObject] = [{"hosts": ["a.test", "*.b.test"]}, {"hosts": ["shop.example.com"]}]
    rules = [ingress_rule(path(to="one"), host=host) for host in ("a.test", "*.b.test")]
    first = ingress(*rules, tls=named)
    second = ingress(ingress_rule(path(to="one"), host="c.test"), name="late", tls=[{}])
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.write("ingress.yaml", first, second)
        done = play.run("up", "--yes")
        assert "spec.tls names no Secret, and shop.example.com isn't below test," in done.out + done.err
        address = str(play.run("status", "--json").json[0]["addresses"][0])
        of_first = {shown(address, host, data) for host in ("a.test", "x.b.test")}
        of_second = {shown(address, host, data) for host in ("c.test", address)}
        assert (len(of_first), len(of_second)) == (1, 1)
        assert of_first != of_second
        retry = play.run("up", "--yes", "--expect-no-changes")
        assert retry.code == 0, retry.out + retry.err


@pytest.mark.browser
def test_a_browser_opens_it_once_it_trusts_the_authority(
    play: Stage, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real Chromium, by its own store: not before, then without a complaint, and not after."""
    certutil()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(stores, "ANCHORS", ())
    with answering("one") as one:
        address = served(play, https(hostname="shop.test"), backend_port=one)
        assert "no program of this host believes your certificates yet" in play.run("status").err
        assert "ERR_CERT_AUTHORITY_INVALID" in page(address, tmp_path)
        trusted = play.run("ca", "trust", "--yes")
        assert trusted.code == 0, trusted.out + trusted.err
        opened = page(address, tmp_path)
        assert "one / " in opened
        assert "ERR_CERT" not in opened
        assert "believes" not in play.run("status").err
        assert play.run("ca", "untrust", "--yes").code == 0
        assert "ERR_CERT_AUTHORITY_INVALID" in page(address, tmp_path)
    assert data.exists()


def page(address: str, home: Path) -> str:
    """Return what a browser of this home shows at https://shop.test."""
    existing = f"--host-resolver-rules=MAP shop.test:443 {address}:{PORT}"
    with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr")
        command = [chromium(), *flags, f"--user-data-dir={profile}", existing, "--dump-dom", "https://shop.test/"]
        places = {"HOME": str(home), "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile}
        environment = {name: text for name, text in os.environ.items() if name != "XDG_DATA_HOME"} | places
        while True:  # it breaks off what it loads when any interface of the host changes, as other tests' do
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment)
            if NETWORK_CHANGED not in done.stdout + done.stderr:
                return done.stdout + done.stderr


def test_no_key_is_in_the_state_the_plan_or_what_is_reported(play: Stage, data: Path) -> None:
    """Names, the authority's fingerprint, the serial number and the end are; the files are for Envoy alone."""
    with answering("one") as one:
        served(play, https(hostname="a.test"), backend_port=one)
        (resource,) = resources(play)
        reported = [
            play.run("preview", "--json").out,
            play.run("status", "--json").out,
            play.run("preview", "--format", "json").out,
        ]
    keys = [path.read_bytes() for path in (*data.glob("*.key"), *play.state_home.rglob("tls-*.key"))]
    assert len(keys) == 2
    # The two lines that have the private number in them; after those a key has the public one, as its certificate does.
    for line in (line for key in keys for line in key.splitlines()[1:3]):
        assert not [name for name, text in play.files().items() if line in text and not name.endswith(".key")]
        assert not [text for text in reported if line.decode() in text]
    assert {path.stat().st_mode & 0o777 for path in play.state_home.rglob("tls-*")} == {0o600}
    assert resource["inputs"]["hosts"] == ["a.test"]
    assert resource["inputs"]["authority"] == _fingerprint(data)
    assert resource["outputs"]["expires"].endswith("Z")


def _fingerprint(data: Path) -> str:
    der = ssl.PEM_cert_to_DER_cert((data / store.CERTIFICATE).read_text())
    return hashlib.sha256(der).hexdigest()


def test_without_the_key_a_listener_without_a_certificate_is_refused_as_before(play: Stage, data: Path) -> None:
    """And no authority is made; a preview makes none either."""
    play.write("gateway.yaml", gateway_class(), gateway(https(hostname="a.test")), route())
    done = play.run("up", "--yes")
    assert "listener https names no certificate; name one" in done.out + done.err
    play.configure(certificates="local")
    assert play.run("preview").code == 0
    assert not data.parent.exists()


def test_a_host_of_another_owner_is_refused_with_the_remedy(play: Stage, data: Path) -> None:
    """The other listener is served."""
    listeners = https(hostname="shop.example.com"), https("one", hostname="a.test")
    with answering("one") as one:
        play.configure(certificates="local")
        play.write("cluster.yaml", node(), service("one", one))
        play.write("gateway.yaml", gateway_class(), gateway(*listeners), route(rule("/", backends=[backend("one")])))
        done = play.run("up", "--yes")
        assert "listener https names no certificate, and shop.example.com isn't below test," in done.out + done.err
        assert "ca create --replace --domain shop.example.com`" in done.out + done.err
        address = play.run("status", "--json").json[0]["addresses"][0]
        assert shown(address, "a.test", data)


def test_an_authority_that_cannot_be_used_takes_nothing_from_what_serves(play: Stage, data: Path) -> None:
    """It is told, `up` doesn't end well, and the certificate stays; with the right one back all goes on."""
    with answering("one") as one:
        address = served(play, https(hostname="a.test"), backend_port=one)
        before, pids = shown(address, "a.test", data), play.pids()
        right = (data / "ca.crt").read_text()
        trusted = trusting(data)
        (data / "ca.crt").write_text("x")
        done = play.run("up", "--yes")
        assert done.code != 0
        assert "ca.crt can't be used: it isn't a certificate in PEM" in done.out + done.err
        with socket.create_connection((address, PORT)) as plain, trusted.wrap_socket(plain, server_hostname="a.test"):
            pass
        (data / "ca.crt").write_text(right)
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        assert (shown(address, "a.test", data), play.pids()) == (before, pids)


def test_new_authority_signs_all_certificates_again(play: Stage, data: Path) -> None:
    """A lost authority is made again by the next `up`, and the process stays."""
    with answering("one") as one:
        address = served(play, https(hostname="a.test"), backend_port=one)
        before, pids = shown(address, "a.test", data), play.pids()
        for path in data.iterdir():
            path.unlink()
        play.up()
        assert shown(address, "a.test", data) != before
        assert play.pids() == pids
        assert len(list(play.state_home.rglob("tls-*"))) == 2


class Clients:
    """Ask at 200 requests a second over HTTPS: half on connections that stay, half each with a handshake of its own."""

    RATE = 200
    STAYING = 4

    def __init__(self, address: str, data: Path) -> None:
        self._address, self._context = address, trusting(data)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._stay) for _ in range(self.STAYING)]
        self._threads += [threading.Thread(target=self._come) for _ in range(self.STAYING)]
        self.answers: list[int] = []
        self.failures: list[str] = []
        self.serials: list[str] = []
        self.connections = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.3)
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection((self._address, PORT), timeout=5)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(plain, server_hostname="a.test")

    def _ask(self, client: ssl.SSLSocket) -> None:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n")
        answer = http.client.HTTPResponse(client)
        answer.begin()
        answer.read()
        self.answers.append(answer.status)

    def _stay(self) -> None:
        self.connections += 1
        with self._connect() as client:
            while not self._stop.wait(2 * self.STAYING / self.RATE):
                try:
                    self._ask(client)
                except (OSError, http.client.HTTPException) as error:
                    self.failures.append(f"cut: {error!r}")
                    return

    def _come(self) -> None:
        while not self._stop.wait(2 * self.STAYING / self.RATE):
            try:
                with self._connect() as client:
                    self.serials.append(str((client.getpeercert() or {})["serialNumber"]).lower())
                    self._ask(client)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"handshake: {error!r}")


@pytest.mark.parametrize("by_watch", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["up", "watch"])
def test_a_certificate_is_renewed_and_no_request_fails(by_watch: bool, play: Stage, data: Path) -> None:  # noqa: FBT001
    """New handshakes get the successor, connections stay, the process and the listener are the same."""
    clock = play.root / "clock"
    with answering("one") as one, ExitStack() as stack:
        stack.enter_context(patch.object(store, "now", lambda: _moved(clock)))
        clock.write_text("-60")
        address = served(play, https(hostname="a.test"), backend_port=one)
        if by_watch:
            watch = Watch(play, program=[sys.executable, "-c", MOVED, str(clock)])
            stack.callback(watch.close)
        pids, made = play.pids(), [shown(address, "a.test", data)]
        with Clients(address, data) as clients:
            for day in ("-30", "0"):
                clock.write_text(day)
                if not by_watch:
                    play.up()
                eventually(lambda: shown(address, "a.test", data) not in made)
                made.append(shown(address, "a.test", data))
        assert clients.failures == []
        assert set(clients.answers) == {200}
        assert clients.connections == Clients.STAYING
        assert list(dict.fromkeys(clients.serials)) == made
        assert play.pids() == pids
        assert len(list(play.state_home.rglob("tls-*"))) == 2


def test_a_certificate_of_a_wrong_clock_is_made_again(play: Stage, data: Path) -> None:
    """One that begins later: by the next `up` once the clock is right, under the same process."""
    clock = play.root / "clock"
    with answering("one") as one, patch.object(store, "now", lambda: _moved(clock)):
        clock.write_text("0")
        store.ensure(store.now())
        clock.write_text("3")
        name = next(name for name in map(str, range(100)) if _period(name, 0) == _period(name, 3))
        address, pids = served(play, https(name, hostname="a.test"), backend_port=one), play.pids()
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(address, "a.test", data)
        clock.write_text("0")
        play.up()
        eventually(lambda: believed(address, data))
        assert play.pids() == pids
        assert play.run("up", "--yes", "--expect-no-changes").code == 0


def believed(address: str, data: Path) -> bool:
    """Return whether a client believes what it is shown."""
    try:
        return bool(shown(address, "a.test", data))
    except ssl.SSLCertVerificationError:
        return False


def _period(listener: str, days: int) -> int:
    """Return for which stretch of time a listener has its certificate, so many days from now."""
    day = int(dt.datetime.now(dt.UTC).timestamp()) // 86400 + days
    return local.certificate(
        LocalAuthority(Fingerprint("ab"), (), day), f"gateways/shop/web/{listener}", ["a.test"]
    ).period


def _moved(clock: Path) -> dt.datetime:
    return dt.datetime.now(dt.UTC) + int(clock.read_text()) * DAYS
