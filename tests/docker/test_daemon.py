"""What a daemon goes through, and how it is reached: stopped, killed, started again; other users, TLS, contexts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.docker.daemon import Hosted, hosted, requested, served
from tests.support.containers import docker_only
from tests.support.host import LOCALLB
from tests.support.manifests import node, port, service
from tests.support.waiting import becomes

pytestmark = [pytest.mark.docker, pytest.mark.envoy, docker_only]
USER = 12_345
HERE = "TCP at 127.0.0.1"


def prepare(host: Hosted) -> None:
    """Write one Service with a low port, whose backend is on the host itself."""
    host.configure()
    host.project.write("node.yaml", node())
    host.project.write("web.yaml", service("web", port(80, 30080)))


@pytest.fixture
def host(image: str) -> Iterator[Hosted]:
    """Return a host with one Service that is served from a container."""
    del image  # there is a daemon, or there is none to be had
    with hosted() as made, served(made.project.space, "TCP@127.0.0.1@30080"):
        prepare(made)
        made.project.up()
        yield made


def place(host: Hosted, user: int = 0) -> str:
    return f"TCP@{host.project.status(user=user)['web']['addresses'][0]}@80"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_while_the_daemon_is_away_every_command_says_so_and_afterwards_one_up_repairs(
    host: Hosted, how: signal.Signals
) -> None:
    """The state stays as it is; when the daemon is back, so is everything: the same container, the same address."""
    at, before = place(host), host.identities()
    state = host.project.root / ".state/.pulumi/stacks/local-lb/dev.json"
    text = state.read_bytes()
    host.daemon.end(how)
    for terms in (("status",), ("preview",), ("up", "--yes"), ("refresh", "--yes"), ("destroy", "--yes")):
        done = host.project.locallb(*terms)
        assert done.code == 1, terms
        assert done.err.count("Docker doesn't answer") == 1, done.err
        assert "Traceback" not in done.err
    assert state.read_bytes() == text
    host.daemon.start()
    host.project.up()
    assert (place(host), host.identities()) == (at, before)
    assert requested(host.project.space, at) == [HERE]
    assert host.project.locallb("up", "--yes", "--expect-no-changes").code == 0


@pytest.mark.parametrize(
    ("how", "sentence"),
    [(signal.SIGKILL, "Docker doesn't answer"), (signal.SIGSTOP, "takes connections and answers nothing")],
    ids=["killed", "hangs"],
)
def test_what_serves_is_shown_while_the_daemon_does_not_answer(
    host: Hosted, how: signal.Signals, sentence: str
) -> None:
    """The table as ever, from the proxies themselves; what Docker would know is missing, and one sentence says why."""
    before = host.project.status()
    assert before["web"]["state"] == "serving"
    assert host.daemon.process
    host.daemon.process.send_signal(how)
    try:
        table, done = host.project.locallb("status"), host.project.locallb("status", "--json")
    finally:
        host.daemon.process.send_signal(signal.SIGCONT)
    assert {row["name"]: row for row in done.json} == before
    assert "web" in table.out
    for shown in (table, done):
        assert shown.code == 1
        assert shown.err.count(sentence) == 1, shown.err
    if how is signal.SIGKILL:
        host.daemon.end(how)
        host.daemon.start()


@contextmanager
def followed(host: Hosted) -> Iterator[Callable[[], str]]:
    """Let a loop follow the stack; gives what returns all that it printed."""
    project = host.project
    home = {"XDG_STATE_HOME": str(project.root / "s"), "HOME": str(project.root)}
    command = project.space.enter(*LOCALLB, "-C", str(project.root), "watch", "--plain")
    reported = project.root / "told"
    with reported.open("wb") as file:
        watch = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **home})
    try:
        becomes(lambda: "converged: 1 Service" in reported.read_text(), reported.read_text)
        yield reported.read_text
    finally:
        watch.terminate()
        watch.wait(60)


def change_backends(host: Hosted, at: str) -> None:
    """Move the backends to another address, and back; wait until clients get there."""
    with served(host.project.space, "TCP@127.0.0.2@30080"):
        for address in ("127.0.0.2", "127.0.0.1"):
            host.project.write("node.yaml", node("node-a", address))
            becomes(lambda address=address: requested(host.project.space, at) == [f"TCP at {address}"])  # type: ignore[misc]


def test_the_loop_reports_a_daemon_that_hangs_and_when_it_answers_again(host: Hosted) -> None:
    """Its socket takes every connection meanwhile, and no connection ends; changes of backends need no daemon."""
    daemon, at = host.daemon.process, place(host)
    assert daemon
    with followed(host) as reported:
        try:
            daemon.send_signal(signal.SIGSTOP)
            change_backends(host, at)
            becomes(lambda: "takes connections and answers nothing" in reported(), reported)
            change_backends(host, at)
        finally:
            daemon.send_signal(signal.SIGCONT)
        becomes(lambda: "no longer: Docker at" in reported(), reported)
        assert requested(host.project.space, at) == [HERE]


def test_changes_of_backends_reach_containers_after_the_daemon_was_killed(host: Hosted) -> None:
    """They go on without it, and so does the loop."""
    at = place(host)
    with followed(host):
        host.daemon.end(signal.SIGKILL)
        try:
            change_backends(host, at)
        finally:
            host.daemon.start()


def test_a_member_of_the_group_docker_needs_no_other_right(image: str) -> None:
    """Not root, no capability: low ports all the same, and whoever isn't a member is told so."""
    del image
    with hosted("--group", str(USER), owner=USER) as made, served(made.project.space, "TCP@127.0.0.1@30080"):
        prepare(made)
        made.project.up(user=USER)
        assert requested(made.project.space, place(made, USER)) == [HERE]
        assert made.project.locallb("up", "--yes", "--expect-no-changes", user=USER).code == 0
        made.daemon.space.shell(f"chown 0:0 {made.daemon.root}/docker.sock")
        done = made.project.locallb("up", "--yes", user=USER)
        assert done.code == 1
        assert "isn't open to this user: join the group `docker`" in done.err
        made.daemon.space.shell(f"chown 0:{USER} {made.daemon.root}/docker.sock")


CERTIFICATES = """
cd {root}/tls
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca.pem -days 2 -subj /CN=ca 2>/dev/null
for who in server client; do
  openssl req -newkey rsa:2048 -nodes -keyout $who-key.pem -out $who.csr -subj /CN=$who 2>/dev/null
  echo 'subjectAltName=IP:127.0.0.1' >$who.ext
  openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile $who.ext \
    -out $who.pem 2>/dev/null
done
mv client.pem cert.pem; mv client-key.pem key.pem
"""
TLS = "tcp://127.0.0.1:2376"


def test_tls_settings_and_contexts_are_respected(image: str) -> None:
    """By the variables of the environment, by Docker's current context; without a certificate it is refused."""
    del image
    with hosted() as made, served(made.project.space, "TCP@127.0.0.1@30080"):
        root, space = made.project.root, made.project.space
        (root / "tls").mkdir()
        space.shell(CERTIFICATES.format(root=root))
        made.daemon.end()
        names = {"tlscacert": "ca.pem", "tlscert": "server.pem", "tlskey": "server-key.pem"}
        files = [f"--{option}={root}/tls/{name}" for option, name in names.items()]
        made.daemon.options = ("-H", TLS, "--tlsverify", *files)
        made.daemon.start()
        prepare(made)
        done = made.project.locallb(
            "up", "--yes", DOCKER_HOST=TLS, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=f"{root}/tls"
        )
        assert done.code == 0, done.err
        refused = made.project.locallb("up", "--yes", DOCKER_HOST=TLS)
        assert refused.code == 1
        assert TLS in refused.err
        assert "Traceback" not in refused.err
        keys = f"ca={root}/tls/ca.pem,cert={root}/tls/cert.pem,key={root}/tls/key.pem"
        config = f"{root}/config"
        for terms in (("create", "lab", "--docker", f"host={TLS},{keys}"), ("use", "lab")):
            done = space.run("docker", "context", *terms, DOCKER_CONFIG=config, DOCKER_HOST="")
            assert done.code == 0, f"{shlex.join(terms)}: {done.err}"
        retry = ("up", "--yes", "--expect-no-changes")
        by_context = made.project.locallb(*retry, DOCKER_CONFIG=config, DOCKER_HOST="")
        assert by_context.code == 0, by_context.err
        (row,) = made.project.locallb("status", "--json", DOCKER_CONFIG=config, DOCKER_HOST="").json
        assert row["state"] == "serving"
