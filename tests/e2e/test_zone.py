"""A stack that writes into a zone of a real BIND 9, beside others: names equal the plan whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import dns.query
import dns.tsigkeyring
import dns.update
import pytest

from tests.support.backends import Backend
from tests.support.bind import ZONE, Bind, bind
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy
HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"
SERVICES, EACH, ROUNDS = 10, 50, 8


@pytest.fixture
def server() -> Iterator[Bind]:
    """Run a server that wants a key."""
    with bind(signed=True) as running:
        yield running


def zoned(play: Stage, server: Bind, *, owner: str = "", takes: str = "", **more: object) -> None:
    """Have the stack write into the server's zone, with an owner of its own if one is given."""
    reported = {"server": f"127.0.0.1:{server.port}", "tsig": str(server.key), **({"owner": owner} if owner else {})}
    reported |= {"takeOver": takes} if takes else {}
    dns = {"zones": [{"zone": ZONE, "rfc2136": reported}], "template": False}
    play.configure(dns=dns, **more)


def named(name: str, to: int, *hosts: str) -> dict[str, Any]:
    return service(name, port(8080, to), annotations={HOSTNAME: ",".join(f"{host}.{ZONE}" for host in hosts)})


def planned(play: Stage) -> dict[str, set[str]]:
    """Return what the zone shall have, as `status` says."""
    return {name: {f"A {row['addresses'][0]}"} for row in play.status().values() for name in row.get("names", ())}


def test_names_come_change_and_go(play: Stage, backend: Callable[..., Backend], server: Bind) -> None:
    """By `up`; repaired by `refresh` and `up`, removed by destroy; the key is in no file of the project's."""
    to, before = backend("one").port, server.records()
    zoned(play, server)
    play.write("all.yaml", node(), named("web", to, "web", "*.apps"), named("x", to, "x"))
    play.up()
    at = play.addresses()
    assert server.names() == {
        f"web.{ZONE}": {f"A {at['n/web']}"},
        f"*.apps.{ZONE}": {f"A {at['n/web']}"},
        f"x.{ZONE}": {f"A {at['n/x']}"},
    }
    assert play.run("preview", "--expect-no-changes").code == 0
    secret = server.key.read_text().split('"')[3].encode()
    assert not [name for name, content in play.files().items() if secret in content]
    play.write("all.yaml", node(), named("web", to, "web"), named("x", to, "x", "y"))
    play.up()
    assert server.names() == planned(play)
    zoned(play, server, owner="laptop")
    play.up()
    assert server.names() == planned(play)
    marks = [text for values in server.records().values() for text in values if "heritage=" in text]
    assert len(marks) == 3
    assert all("external-dns/owner=laptop," in mark for mark in marks)
    assert play.run("preview", "--expect-no-changes").code == 0
    assert play.run("destroy", "--yes").code == 0
    assert server.records() == before


def test_names_of_external_dns_are_taken_over(play: Stage, backend: Callable[..., Backend], server: Bind) -> None:
    """In both of its formats, of the owner that is told; another owner's stay, and all else of the zone does."""
    to, before = backend("one").port, server.records()
    theirs = "heritage=external-dns,external-dns/owner={},external-dns/resource=service/n/web"
    for name, owner, marks in (
        ("both", "default", ("both", "a-both")),
        ("old", "default", ("old",)),
        ("new", "default", ("a-new",)),
        ("other", "prod", ("other", "a-other")),
    ):
        write(server, name, "A", "192.0.2.7")
        for mark in marks:
            write(server, mark, "TXT", f'"{theirs.format(owner)}"')
    write(server, "alias", "CNAME", f"foreign.{ZONE}.")
    write(server, "cname-alias", "TXT", f'"{theirs.format("default")}"')
    found = server.records()
    play.write("all.yaml", node(), named("web", to, "both", "old", "new", "alias"), named("x", to, "other"))
    zoned(play, server)
    assert play.run("up", "--yes").code != 0
    assert server.records() == found
    zoned(play, server, takes="default")
    refused = play.run("up", "--yes")
    assert f"other.{ZONE} isn't this stack's to change" in refused.err
    assert "for service/n/web of prod; remove it there or choose another name" in refused.err
    at = play.addresses()["n/web"]
    assert {name for name, values in server.names().items() if values == {f"A {at}"}} == {
        f"{name}.{ZONE}" for name in ("both", "old", "new", "alias")
    }
    assert not [values for values in server.records().values() for text in values if "owner=default" in text]
    assert {name: values for name, values in server.records().items() if "other" in str(name)} == {
        name: values for name, values in found.items() if "other" in str(name)
    }
    play.write("all.yaml", node(), named("web", to, "both", "old", "new", "alias"))
    play.up()
    assert play.run("preview", "--expect-no-changes").code == 0
    assert play.run("destroy", "--yes").code == 0
    remaining = {name: values for name, values in server.records().items() if "other" not in str(name)}
    assert remaining == before


def test_a_name_of_another_owner_fails_alone(play: Stage, backend: Callable[..., Backend], server: Bind) -> None:
    """In one sentence, while everything else is served and named."""
    to = backend("one").port
    zoned(play, server)
    play.write("all.yaml", node(), named("web", to, "foreign"), named("x", to, "x"))
    done = play.run("up", "--yes")
    assert done.code != 0
    assert f"foreign.{ZONE} isn't this stack's to change" in done.out + done.err
    assert server.records()[f"foreign.{ZONE}"] == {"A 192.0.2.1"}
    assert f"x.{ZONE}" in server.names()
    assert {row["state"] for row in play.status().values()} == {"serving"}


def test_gc_removes_what_a_lost_state_left(play: Stage, backend: Callable[..., Backend], server: Bind) -> None:
    """By the marks of this stack; it lists them first."""
    to, before = backend("one").port, server.records()
    zoned(play, server)
    play.write("all.yaml", node(), named("web", to, "web", "*.apps"))
    play.up()
    state = play.root / ".state/.pulumi/stacks/local-lb/dev.json"
    lost = json.loads(state.read_text())
    assert play.run("gc", "--json").json == []
    lost["checkpoint"]["latest"]["resources"] = []
    state.write_text(json.dumps(lost))
    listed = [each["what"] for each in play.run("gc", "--json").json if each["sort"] == "name"]
    assert listed == [f"*.apps.{ZONE}", f"web.{ZONE}"]
    assert server.names()
    assert play.run("gc", "--yes").code == 0
    assert server.records() == before


def test_watch_repairs_removed_and_missed_dns_records(
    play: Stage, backend: Callable[..., Backend], server: Bind
) -> None:
    """What somebody removed, and what a server that was away didn't hear."""
    to = backend("one").port
    zoned(play, server)
    play.write("all.yaml", node(), named("web", to, "web"))
    with watching(play) as watch:
        eventually(lambda: server.names() == planned(play) != {}, watch)
        server.stop(signal.SIGKILL)
        play.write("more.yaml", named("late", to, "late"))
        eventually(lambda: "doesn't answer" in watch.reported(), watch)
        server.start()
        eventually(lambda: f"late.{ZONE}" in server.names(), watch)
        by_hand(server, f"web.{ZONE}.")
        assert f"web.{ZONE}" not in server.names()
        watch.process.send_signal(signal.SIGHUP)  # a full pass now
        eventually(lambda: server.names() == planned(play), watch)
        watch.process.send_signal(signal.SIGHUP)
        time.sleep(1)  # so that nothing but the zone has changed since the last full pass
        by_hand(server, f"late.{ZONE}.")
        watch.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.names() == planned(play), watch)


def by_hand(server: Bind, name: str) -> None:
    """Remove a name's addresses as somebody else who has the key."""
    message = dns.update.UpdateMessage(f"{ZONE}.")
    message.delete(name, "A")
    send(server, message)


def write(server: Bind, name: str, kind: str, value: str) -> None:
    message = dns.update.UpdateMessage(f"{ZONE}.")
    message.add(name, 60, kind, value)
    send(server, message)


def send(server: Bind, message: dns.update.UpdateMessage) -> None:
    """Sign a message, and expect that it is taken."""
    secret = server.key.read_text().split('"')[3]
    message.use_tsig(dns.tsigkeyring.from_text({"lab": secret}))
    assert dns.query.tcp(message, "127.0.0.1", 5, server.port).rcode() == 0


@pytest.mark.slow
def test_hundreds_of_names_under_kills(play: Stage, backend: Callable[..., Backend], server: Bind) -> None:
    """Of the loop and of the server: in the end the zone is as planned, and what others have as it was."""
    to, chance = backend("one").port, random.Random(7)
    zoned(play, server, proxies="shared")
    foreign, serial = {name: server.records()[f"{name}.{ZONE}"] for name in ("foreign", "mail", "ns")}, server.serial()

    def write() -> None:
        chosen = [[f"s{n}-{k}" for k in chance.sample(range(2 * EACH), EACH)] for n in range(SERVICES)]
        play.write("all.yaml", node(), *(named(f"s{n}", to, *hosts) for n, hosts in enumerate(chosen)))

    for number in range(ROUNDS):
        write()
        with watching(play) as watch:
            time.sleep(chance.uniform(0.5, 6))
            if number % 2:
                server.stop(signal.SIGKILL)
                time.sleep(chance.uniform(0, 1))
                server.start()
            os.kill(watch.process.pid, signal.SIGKILL)
            watch.process.wait()
    write()
    with watching(play) as watch:
        eventually(lambda: len(planned(play)) == SERVICES * EACH, watch)
        with contextlib.suppress(AssertionError):  # the difference says more
            eventually(lambda: server.names() == planned(play), watch)
        assert server.names() == planned(play), watch.reported()
    assert {name: server.records()[f"{name}.{ZONE}"] for name in foreign} == foreign
    assert server.serial() > serial
    play.write("all.yaml", node())
    play.up()
    assert not server.names()
    assert {name: server.records()[f"{name}.{ZONE}"] for name in foreign} == foreign
