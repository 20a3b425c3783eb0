"""SIGKILL of `up` and `destroy` at random moments: one more run converges, and nothing is left or doubled."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.e2e.killing import LONGEST, STARTUP, kill_in_the_middle
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

KILLS = 50


def test_after_a_kill_one_more_run_converges(play: Stage, backend: Callable[..., Backend]) -> None:
    """Fifty kills of `up` (with edits between) and `destroy`: each is healed by one run, at the same addresses."""
    one, two = backend("one"), backend("two")
    seed = random.SystemRandom().randrange(2**32)
    moment = random.Random(seed)
    versions = [
        [service("a", port(8080, one.port)), service("b", port(8080, two.port), port(9000, two.port))],
        [service("a", port(8080, two.port)), service("b", port(8080, two.port)), service("c", port(8080, one.port))],
    ]
    existing: dict[str, str] = {}
    for number in range(KILLS):
        wanted = versions[number % 2]
        play.write("all.yaml", node(), *wanted)
        command = "destroy" if number % 5 == 4 else "up"
        kill_in_the_middle(play, command, moment.uniform(STARTUP, LONGEST))
        done = play.run("up", "--yes")
        reported = f"seed {seed}, kill {number} of {command}: {done.out}{done.err}"
        assert done.code == 0, reported
        at = play.addresses()
        assert {key.removeprefix("n/") for key in at} == {str(manifest["metadata"]["name"]) for manifest in wanted}, (
            reported
        )
        assert all(existing.setdefault(key, address) == address for key, address in at.items()), reported
        assert len(envoys(play.root)) == len(wanted), reported
        assert all(ask(address, 8080).endswith(": hello") for address in at.values()), reported
        assert [leftover for leftover in play.run("gc", "--json").json if leftover["ours"]] == [], reported
        assert play.run("preview", "--expect-no-changes").code == 0, reported
    kill_in_the_middle(play, "destroy", moment.uniform(STARTUP, LONGEST))
    assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
    assert list((play.root / ".state/.pulumi/locks").rglob("*.json")) == []
