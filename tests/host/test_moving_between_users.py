"""`locallb state adopt` between two real users: who may end the proxies moves the stack, others are told what to do."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host import Project, project

pytestmark = [pytest.mark.envoy, pytest.mark.root(only="can act as other users")]
FIRST, SECOND = 23451, 23452
ADDRESS = "127.77.0.9"


@pytest.fixture
def play() -> Iterator[Project]:
    """Return a project in which both may write, with a stack that the first has deployed."""
    with project(owner=FIRST) as made:
        made.write("s.yaml", *OBJECTS)
        made.up(user=FIRST)
        try:
            yield made
        finally:
            hand_over(made, FIRST)
            made.locallb("state", "adopt", "--yes", user=FIRST)


OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "n"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": ADDRESS, "ports": [{"port": 8080, "nodePort": 30080}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a"},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]},
    },
)


def hand_over(play: Project, user: int) -> None:
    """Give a user the project with its state, as `chown -R` does; proxies stay whose they are."""
    for path in (play.root, *play.root.rglob("*")):
        if path != play.root / "s" and (play.root / "s") not in path.parents:
            os.chown(path, user, user, follow_symlinks=False)


def home(play: Project, user: int) -> dict[str, str]:
    """Return a state home of the user's own."""
    path = play.root / f"home-{user}"
    path.mkdir(exist_ok=True)
    os.chown(path, user, user)
    return {"XDG_STATE_HOME": str(path)}


def proxies(play: Project) -> list[tuple[int, int]]:
    """List the Envoys of the project: pid and user."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(path.readlink()).startswith(str(play.root)) and (path.parent / "comm").read_text() == "envoy\n":
                pids.append((int(path.parent.name), path.parent.stat().st_uid))
        except OSError:
            continue
    return pids


def ended(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [])
    os.close(descriptor)


def test_a_user_without_rights_over_proxies_learns_their_owner(play: Project) -> None:
    """Neither they nor the record of whose the stack is are changed."""
    before = proxies(play)
    record = (play.root / ".state/locallb/dev/state-home").read_bytes()
    hand_over(play, SECOND)
    for terms in (("up", "--yes"), ("state", "adopt", "--yes")):
        done = play.locallb(*terms, user=SECOND, **home(play, SECOND))
        assert done.code == 1, done.out
        assert f"user {FIRST}" in " ".join(done.err.split())
        assert "Traceback" not in done.err
    assert proxies(play) == before
    assert (play.root / ".state/locallb/dev/state-home").read_bytes() == record
    (pid,) = (pid for pid, _ in before)
    assert f"root may, with `kill {pid}`, and then run" in " ".join(done.err.split())
    os.kill(pid, signal.SIGTERM)
    ended(pid)
    assert play.locallb("state", "adopt", "--yes", user=SECOND, **home(play, SECOND)).code == 0
    assert play.locallb("up", "--yes", user=SECOND, **home(play, SECOND)).code == 0
    assert [user for _, user in proxies(play)] == [SECOND]
    assert play.locallb("destroy", "--yes", user=SECOND, **home(play, SECOND)).code == 0


def test_root_takes_a_stack_over_and_another_user_takes_it_from_there(play: Project) -> None:
    """At each move the proxies end and start again as the new user's, at the same address."""
    assert [user for _, user in proxies(play)] == [FIRST]
    for user in (0, FIRST):
        if user:  # root ends what is root's before it gives the stack away
            play.locallb("destroy", "--yes", user=0, **home(play, 0))
        hand_over(play, user)
        done = play.locallb("state", "adopt", "--yes", user=user, **home(play, user))
        assert done.code == 0, done.err
        assert proxies(play) == []
        done = play.locallb("up", "--yes", user=user, **home(play, user))
        assert done.code == 0, done.err
        assert [owner for _, owner in proxies(play)] == [user]
        (row,) = play.locallb("status", "--json", user=user, **home(play, user)).json
        assert row["addresses"] == [ADDRESS]
        assert play.locallb("up", "--yes", "--expect-no-changes", user=user, **home(play, user)).code == 0
