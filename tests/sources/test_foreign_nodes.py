"""A cluster that somebody else named says where Nodes are: whatever its server does costs little and holds nobody."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import httpcore2
import pytest
import yaml

from locallb.config.parsing import parse_settings
from locallb.config.settings import PodRouting, Settings, SettingsError
from locallb.kubernetes.api import limits as allowance
from locallb.model.pacing import Pace
from locallb.sources import found as found_module
from locallb.sources.entries import MachinesFinder
from locallb.sources.kubernetes import nodes
from locallb.sources.kubernetes.nodes import MAX_POD_ROUTES, NodePolls
from tests.sources.machines import BOTH, WAYS, A, find, pods, put, settings
from tests.support.certificates import Authority, Pair
from tests.support.seed_api import kubeconfig, served_seed
from tests.support.servers import ANSWER_HEAD, QuietHandler, QuietServer, dripping, in_thread
from tests.support.waiting import becomes

DRIPS = {
    "head": ("http", ANSWER_HEAD),
    "body": ("http", ANSWER_HEAD + b"100\r\n\r\n"),
    "handshake": ("https", b"\x16\x03\x03\x40\x00\x02"),
}


@pytest.mark.parametrize("part", DRIPS)
def test_a_server_that_drips_ends_nobodys_patience_but_its_own(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its bytes comes in time; all of them together don't."""
    monkeypatch.setattr(allowance, "SECONDS", 0.3)
    scheme, begun = DRIPS[part]
    with dripping(begun) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        (tmp_path / "cloudprovider").write_text(kubeconfig(url, {"token": "t"}))
        found, (reported,) = find(tmp_path)
    assert found == {A: ()}
    assert f"{url} doesn't answer (" in reported


def trust(path: Path, authority: Authority) -> None:
    """Have a kubeconfig trust who is signed by an authority."""
    config = yaml.safe_load(path.read_text())
    trusted = base64.b64encode(authority.own.pem.encode()).decode()
    config["clusters"][0]["cluster"]["certificate-authority-data"] = trusted
    path.write_text(yaml.safe_dump(config))


def _flood(server: socket.socket, pair: Pair, tickets: int) -> None:
    """Send a client tickets for later sessions, and hang up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)
    context.num_tickets = tickets
    client, _ = server.accept()
    with client, suppress(OSError), context.wrap_socket(client, server_side=True):  # it hangs up first
        pass


@pytest.mark.parametrize(
    ("tick", "maximum", "sentence"),
    [(0.5, 1 << 30, "its answers take longer than 60 s"), (0.0, 1 << 20, "its answers are larger than 1 MiB")],
)
def test_a_server_that_floods_with_what_no_client_sees_ends_as_well(
    tick: float, maximum: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS itself takes such parts, of which there may be any number, and returns nothing."""
    now = count(0.0, tick)
    monkeypatch.setattr(allowance, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(allowance, "SECONDS", 60.0)
    monkeypatch.setattr(allowance, "BYTES", maximum)
    authority = Authority(tmp_path / "authority")
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_flood, args=(server, authority.sign("IP:127.0.0.1"), 200_000))
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "cloudprovider").write_text(kubeconfig(url, {"token": "t"}))
        trust(tmp_path / "cloudprovider", authority)
        _, (reported,) = find(tmp_path)
        thread.join()
    assert sentence in reported


def test_a_server_with_tls_is_asked_as_any(tmp_path: Path) -> None:
    """Within its allowance, an answer of several parts comes whole; who isn't trusted isn't asked."""
    authority = Authority(tmp_path / "authority")
    signed = authority.sign("IP:127.0.0.1")
    with served_seed(tmp_path / "cloudprovider", certificate=(signed.chain, signed.key)) as api:
        put(api, A, *BOTH)
        api.objects[pods(A)][0]["metadata"]["annotations"] = {"x": "x" * 300_000}
        _, (reported,) = find(tmp_path)
        assert "CERTIFICATE_VERIFY_FAILED" in reported
        assert api.requested == []
        trust(tmp_path / "cloudprovider", authority)
        assert find(tmp_path) == ({A: WAYS}, [])


@contextmanager
def answering(path: Path, answer: Callable[[BaseHTTPRequestHandler], bytes]) -> Iterator[list[str]]:
    """Serve whatever `answer` returns, and give what was asked; `path` gets a kubeconfig."""
    requested: list[str] = []

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            body = answer(self)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # it hangs up
                self.wfile.write(body)

    server = QuietServer(("127.0.0.1", 0), Handler)
    with in_thread(server):
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}", {"token": "t"}))
        yield requested


def page(following: str = "", padding: int = 0, items: Sequence[object] = ()) -> bytes:
    metadata = {"resourceVersion": "1", "continue": following, "x": "x" * padding}
    return json.dumps({"metadata": metadata, "items": items}).encode()


def test_servers_are_asked_side_by_side(tmp_path: Path) -> None:
    """Those that answer nobody cost the seconds of one; what they say stays in order."""
    shoots = [f"a{number}" for number in range(8)]
    all_asked = threading.Barrier(len(shoots))

    def answer(request: BaseHTTPRequestHandler) -> bytes:
        if request.path.startswith("/api/v1/namespaces/infra-a") and "/pods" in request.path:
            all_asked.wait(60.0)
        return page(items=[])

    with answering(tmp_path / "cloudprovider", answer):
        found, reported = find(tmp_path, *shoots)
    assert list(found) == shoots
    assert ["takes longer" in sentence or "doesn't answer" in sentence for sentence in reported] == [False] * len(
        shoots
    )


def test_no_more_servers_are_asked_side_by_side_than_threads_are_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have their turn."""
    monkeypatch.setattr(found_module, "_AT_ONCE", 2)
    crews: set[str] = set()

    def ask(*_: object, **__: object) -> tuple[()]:
        crews.add(threading.current_thread().name)
        return ()

    monkeypatch.setattr(nodes, "_ask", ask)
    shoots = [f"a{number}" for number in range(8)]
    assert find(tmp_path, *shoots) == (dict.fromkeys(shoots, ()), [])
    assert len(crews) <= 2


def test_a_list_without_an_end_ends(tmp_path: Path) -> None:
    """After ten pages."""
    numbers = iter(range(10**6))
    with answering(tmp_path / "cloudprovider", lambda _: page(f"p{next(numbers)}")) as requested:
        _, (reported,) = find(tmp_path)
    assert "the list has over 10 pages" in reported
    assert len(requested) == allowance.PAGES


def test_answers_are_no_larger_than_they_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages together."""
    monkeypatch.setattr(allowance, "BYTES", 1 << 20)
    numbers = iter(range(10**6))
    with answering(tmp_path / "cloudprovider", lambda _: page(f"p{next(numbers)}", 400_000)) as requested:
        _, (reported,) = find(tmp_path)
    assert "its answers are larger than 1 MiB" in reported
    assert len(requested) == len((400_000, 800_000, 1_200_000))


def test_an_answer_that_grows_when_it_is_unpacked_is_refused(tmp_path: Path) -> None:
    """Nobody asked for such a one."""

    def packed(handler: BaseHTTPRequestHandler) -> bytes:
        assert handler.headers["Accept-Encoding"] == "identity"
        handler.send_header("Content-Encoding", "gzip")
        return gzip.compress(page(padding=1 << 20))

    with answering(tmp_path / "cloudprovider", packed):
        _, (reported,) = find(tmp_path)
    assert "the answer is compressed" in reported


def test_failed_read_of_nodes_is_not_retried_in_one_run(tmp_path: Path) -> None:
    """A loop looks again anyway, and `up` goes on."""
    with served_seed(tmp_path / "cloudprovider") as api:
        api.refused = 503
        _, (reported,) = find(tmp_path)
    assert "can't serve the list of Pods now (503" in reported
    assert len(api.requested) == 1


def test_a_refusal_names_the_rights_and_is_quoted_in_part(tmp_path: Path) -> None:
    """Those for Nodes that are pods; what a server writes may be of any length."""
    with served_seed(tmp_path / "cloudprovider") as api:
        api.refused, api.message = 403, "n" * 10_000
        _, (reported,) = find(tmp_path)
    assert "; give the user of context it the rights of deploy/rbac-machines.yaml; and no way" in reported
    assert reported.count("n" * 100) <= len(reported) // 100 < len(api.message) // 500


def test_unresolved_name_blocks_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This host's resolver has no deadline of its own."""
    monkeypatch.setattr(allowance, "SECONDS", 0.2)
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: over.wait() and [])
    (tmp_path / "cloudprovider").write_text(kubeconfig("http://slow.invalid", {"token": "t"}))
    try:
        _, (reported,) = find(tmp_path)
    finally:
        over.set()
    assert "the name slow.invalid has no address" in reported


def test_a_name_with_many_addresses_takes_no_longer_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which none answers: each gets the time that is left."""
    clock, tried = SimpleNamespace(now=0.0), list[str]()

    def connect(_backend: object, host: str, _port: int, timeout: float, *_: object) -> None:
        tried.append(host)
        clock.now += timeout
        raise httpcore2.ConnectTimeout

    many = [(0, 0, 0, "", (f"127.9.9.{number}", 0)) for number in range(100)]
    monkeypatch.setattr(allowance, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(httpcore2.SyncBackend, "connect_tcp", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: many)
    (tmp_path / "cloudprovider").write_text(kubeconfig("http://many.invalid", {"token": "t"}))
    _, (reported,) = find(tmp_path)
    assert "its answers take longer than 5 s" in reported
    assert (clock.now, tried) == (allowance.SECONDS, ["127.9.9.0", "127.9.9.1"])


@pytest.mark.parametrize("families", [1, 2])
def test_ways_are_a_thousand_at_most(families: int, tmp_path: Path) -> None:
    """With more, whoever writes them wants something else than Nodes: those that were found last count."""
    with served_seed(tmp_path / "cloudprovider") as api:
        maximum = MAX_POD_ROUTES // families
        for number in range(maximum):
            put(
                api,
                A,
                [f"10.0.{number // 250}.{number % 250}", f"fd00::{number + 1:x}"][:families],
                BOTH[1],
                f"m{number}",
            )
        first, reported = find(tmp_path)
        assert (len(first[A]), reported) == (MAX_POD_ROUTES, [])
        put(api, A, ["10.1.0.1", "fd00:1::1"][:families], BOTH[1], "more")
        found, (sentence,) = find(tmp_path)
    assert found == first
    assert "; 1000 are taken over at most; so the 1000 ways to them count that were found last" in sentence


def test_while_one_reader_polls_no_other_asks(tmp_path: Path) -> None:
    """So a server that answers nobody delays nothing: what was kept counts, then what was found last, or why not."""
    gate, waits = threading.Event(), threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> bytes:
        waits.set()
        gate.wait()
        return page(items=[one])

    other = {"podIPs": [{"ip": "10.0.7.9"}], "hostIPs": [{"ip": "172.18.0.9"}]}
    one = {"metadata": {"name": "m9", "namespace": f"infra-{A}"}, "status": other}
    with served_seed(tmp_path / "cloudprovider") as api:
        put(api, A, *BOTH)
        assert find(tmp_path) == ({A: WAYS}, [])
    (finder,) = settings().finders
    assert isinstance(finder, MachinesFinder)
    reported: list[str] = []
    with answering(tmp_path / "cloudprovider", wait) as requested:
        polls = NodePolls(finder, tmp_path, reported.append, Pace(first=0.02, longest=0.02, floor=0.02))
        try:
            assert waits.wait(30)
            assert find(tmp_path) == ({A: WAYS}, [])
            assert len(requested) == 1
            gate.set()
            becomes(lambda: len(reported) == len(["found"]))
            assert find(tmp_path) == (changed := {A: ("10.0.7.9/32 via 172.18.0.9",)}, [])
            (tmp_path / "half").write_text("{")
            (tmp_path / "half").rename(tmp_path / "cloudprovider")  # otherwise it may be read while it is empty
            becomes(lambda: len(reported) == len(["found", "failed"]))
            pod_paths, (sentence,) = find(tmp_path)
            assert pod_paths == changed
            assert "cloudprovider isn't a kubeconfig" in sentence
        finally:
            gate.set()
            polls.stop()


@pytest.mark.parametrize("answers", [True, False])
def test_where_nothing_is_known_the_first_answer_is_waited_for_once(
    *, answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment: a Service that is told its address before there are routes serves nobody."""
    monkeypatch.setattr(nodes, "FIRST", 60.0 if answers else 0.05)
    gate = threading.Event()
    other = {"podIPs": [{"ip": "10.0.7.9"}], "hostIPs": [{"ip": "172.18.0.9"}]}
    one = {"metadata": {"name": "m9", "namespace": f"infra-{A}"}, "status": other}
    (finder,) = settings().finders
    assert isinstance(finder, MachinesFinder)

    def answer(_: BaseHTTPRequestHandler) -> bytes:
        if not answers:
            gate.wait()
        return page(items=[one])

    with answering(tmp_path / "cloudprovider", answer) as requested:
        polls = NodePolls(finder, tmp_path, lambda _: None, Pace(first=0.02, longest=60.0, floor=60.0))
        try:
            expected = {A: ("10.0.7.9/32 via 172.18.0.9",) if answers else ()}
            assert find(tmp_path) == (expected, [])
            monkeypatch.setattr(nodes, "FIRST", 3600.0)
            assert find(tmp_path) == (expected, [])
            assert len(requested) <= 1
        finally:
            gate.set()
            polls.stop()


def test_kept_node_routes_count_only_for_the_same_kubeconfig_context_and_namespace(tmp_path: Path) -> None:
    """Any other is another cluster's, or other Nodes."""
    with served_seed(tmp_path / "cloudprovider") as api:
        put(api, A, *BOTH)
        find(tmp_path)
        api.refused = 403
        assert find(tmp_path)[0] == {A: WAYS}
        (tmp_path / "other").write_text((tmp_path / "cloudprovider").read_text())
        for key, value in (("kubeconfig", "other"), ("context", "it"), ("namespace", "infra-other")):
            assert find(tmp_path, keep=True, **{key: value})[0] == {A: ()}
        assert find(tmp_path)[0] == {A: WAYS}


OLD, NEW = "2026-11-01T10:00:00Z", "2026-11-02T10:00:00Z"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"metadata": {"creationTimestamp": NEW}}, {"metadata": {"creationTimestamp": OLD}}),
        ({"metadata": {"creationTimestamp": OLD}}, {"metadata": {"creationTimestamp": NEW, "deletionTimestamp": NEW}}),
        (
            {"metadata": {"creationTimestamp": OLD}},
            {"metadata": {"creationTimestamp": NEW}, "status": {"phase": "Pending"}},
        ),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_each_address_gets_one_route_by_the_present_pod(
    first: dict[str, dict[str, str]], second: dict[str, dict[str, str]], order: int, tmp_path: Path
) -> None:
    """In whatever order pods are listed; two routes would take turns in the table."""
    with served_seed(tmp_path / "cloudprovider") as api:
        put(api, A, ["10.0.7.2"], ["172.18.0.3"], "first")
        put(api, A, ["10.0.7.2"], ["172.18.0.4"], "second")
        listed = api.objects[pods(A)]
        for pod, differs in zip(listed, (first, second), strict=True):
            for key, fields in differs.items():
                pod[key] |= fields
        listed[:] = listed[::order]
        assert find(tmp_path) == ({A: ("10.0.7.2/32 via 172.18.0.3",)}, [])


def configured(*, named: bool, **keys: object) -> Settings:
    """Read the configuration of a control plane, whose `nodes` names a kubeconfig or doesn't."""
    nodes = {"kubeconfig": "cloudprovider"} if named else {}
    return parse_settings({"sources": [{"kubernetes": {"name": A, "nodes": nodes}}], **keys})


PUBLISHED = {"runtime": "docker", "network": "publish"}


def test_host_pod_routes_are_refused_with_a_foreign_kubeconfig() -> None:
    """For routes of a proxy's namespace it is allowed; a kubeconfig that isn't named is this user's."""
    with pytest.raises(SettingsError) as caught:
        configured(named=True, podRoutes="host")
    (sentence,) = caught.value.sentences
    assert sentence.startswith(
        f"local-lb:podRoutes: host would let whoever writes the kubeconfig in `nodes` of {A} lead"
    )
    assert configured(named=True, podRoutes="container", **PUBLISHED).pod_routes is PodRouting.CONTAINER
    assert configured(named=False, podRoutes="host").pod_routes is PodRouting.HOST


@pytest.mark.parametrize("keys", [{}, {"runtime": "docker"}, {"runtime": "docker", "network": "host"}])
def test_no_remedy_for_such_routes_leads_to_another_mistake(keys: dict[str, str]) -> None:
    """Of the two places for routes, neither is advised that is refused as well; nobody goes round in a circle."""

    def reported(*, named: bool, **more: str) -> str:
        with pytest.raises(SettingsError) as caught:
            configured(named=named, **keys, **more)
        (sentence,) = caught.value.sentences
        return sentence

    needed = "runtime docker or podman and network publish"
    assert f"; use container, with {needed}, or if" in reported(named=True, podRoutes="host")
    assert reported(named=True, podRoutes="container").endswith(f" with {needed}; set both, or use off")
    assert reported(named=False, podRoutes="container").endswith(f" with {needed}; use host")
