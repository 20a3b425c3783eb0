"""Many Services on an unprivileged host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.host.facts import host_facts
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def test_forty_services_at_once_all_serve(play: Stage, backend: Callable[..., Backend]) -> None:
    """40 Services from nothing in one `up`: all serve, each at an address of its own."""
    play.configure(pools=[{"name": "wide", "addresses": [f"{play.at(0)}/24"]}])
    server = backend("one")
    play.write("all.yaml", node(), *(service(f"s{n}", port(8080, server.port)) for n in range(40)))
    play.up()
    at = play.addresses()
    assert len(set(at.values())) == 40
    assert {ask(address, 8080) for address in at.values()} == {"one: hello"}
    assert {row["state"] for row in play.status().values()} == {"serving"}


def test_beyond_what_the_host_allows_each_is_rejected_with_host_limit(
    play: Stage, backend: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for 12 inotify instances six proxies run and serve, the others say HostLimit and how to lift it."""
    monkeypatch.setattr(
        "locallb.runtimes.process_runtime.host_facts", lambda *given: replace(host_facts(*given), watches=12)
    )
    server = backend("one")
    play.write("all.yaml", node(), *(service(f"s{n}", port(8080, server.port)) for n in range(8)))
    done = play.up()
    rows = play.status()
    serving = [key for key, row in rows.items() if row["state"] == "serving"]
    limited = [row for row in rows.values() if row["reason"] == "HostLimit"]
    assert (len(serving), len(limited)) == (6, 2)
    assert all("max_user_instances" in row["message"] for row in limited)
    assert {ask(rows[key]["addresses"][0], 8080) for key in serving} == {"one: hello"}
    assert "Traceback" not in done.out + done.err


def test_the_real_limit_of_this_host_is_met_without_a_failure(play: Stage, backend: Callable[..., Backend]) -> None:
    """As many Services as the real limit carries and a few more: those who fit serve, the rest say HostLimit."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    if limit > 256:
        pytest.skip(f"this host allows {limit} inotify instances: too many proxies for a test")
    play.configure(pools=[{"name": "wide", "addresses": [f"{play.at(0)}/24"]}])
    server = backend("one")
    count = limit // 2 + 4
    play.write("all.yaml", node(), *(service(f"s{n:03}", port(8080, server.port)) for n in range(count)))
    play.up()
    rows = play.status()
    states = [row["state"] for row in rows.values()]
    assert set(states) == {"serving", "rejected"}
    assert {row["reason"] for row in rows.values() if row["state"] == "rejected"} == {"HostLimit"}
    assert states.count("serving") >= 40
