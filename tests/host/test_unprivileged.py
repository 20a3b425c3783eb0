"""An ordinary user in a network namespace with the kernel's default limits: every limit is told, then lifted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.host.facts import inotify_limit
from tests.support.host import PYTHON, Project, background, project, requested, served
from tests.support.manifests import node, port, service

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

USER = 4321
NODE_PORT = 30080
LOW = (22, 53, 80, 443)
WIDE = [{"name": "wide", "addresses": ["127.77.0.0/23"]}]
SSHD = "import socket,time; s=socket.create_server(('0.0.0.0',22)); print('up',flush=True); time.sleep(600)"


@pytest.fixture
def stage() -> Iterator[Project]:
    """Return an ordinary user's stack, and an application behind it."""
    with project(owner=USER) as made, served(made.space, f"127.0.0.1@{NODE_PORT}"):
        made.write("node.yaml", node())
        yield made


def problems(stage: Project) -> str:
    findings = stage.locallb("doctor", "--json", user=USER).json["findings"]
    return "\n".join(
        f"{finding['text']} -> {finding['remedy']}"
        for finding in findings
        if finding["level"] in {"warning", "problem"}
    )


def test_low_ports_are_reported_and_serve_after_host_setup(stage: Project) -> None:
    """PortPrivileged and PortInUse with the remedy each; then 22, 53, 80 and 443 answer where nobody has the port."""
    stage.write("low.yaml", *[service(f"p{number}", port(number, NODE_PORT)) for number in LOW])
    stage.up(user=USER)
    rows = stage.status(user=USER)
    assert {(row["state"], row["reason"]) for row in rows.values()} == {("rejected", "PortPrivileged")}
    assert all("locallb host setup --yes" in row["message"] for row in rows.values())
    assert "22, 53, 80, 443" in problems(stage)
    assert stage.locallb("host", "setup", "--yes", SUDO_UID=str(USER)).code == 0
    with background(stage.space, PYTHON, "-c", SSHD):
        stage.up(user=USER)
        rows = stage.status(user=USER)
        assert (rows["p22"]["state"], rows["p22"]["reason"]) == ("rejected", "PortInUse")
        assert "listens on every address at 22/TCP" in problems(stage)
        places = [f"{rows[f'p{number}']['addresses'][0]}@{number}" for number in LOW[1:]]
        assert requested(stage.space, *places) == [f"hello from {NODE_PORT}"] * 3
    stage.up(user=USER)
    rows = stage.status(user=USER)
    assert {row["state"] for row in rows.values()} == {"serving"}
    places = [f"{rows[f'p{number}']['addresses'][0]}@{number}" for number in LOW]
    assert requested(stage.space, *places) == [f"hello from {NODE_PORT}"] * 4


def test_more_services_than_the_host_carries_are_rejected_one_by_one(stage: Project) -> None:
    """64 proxies fit into 128 inotify instances; the others are told HostLimit, and the next run uses what is freed."""
    if inotify_limit() != 128:
        pytest.skip(f"this kernel allows {inotify_limit()} inotify instances, not the default 128")
    stage.configure(pools=WIDE)
    stage.write("many.yaml", *[service(f"s{number:02}", port(8080, NODE_PORT)) for number in range(70)])
    stage.up(user=USER)
    rows = stage.status(user=USER)
    rejected = sorted(name for name, row in rows.items() if row["state"] == "rejected")
    assert {rows[name]["reason"] for name in rejected} == {"HostLimit"}
    assert len(rejected) == 6
    assert "room for 0 more proxies (limit: inotify instances" in problems(stage)
    stage.write("many.yaml", *[service(f"s{number:02}", port(8080, NODE_PORT)) for number in range(10, 70)])
    stage.up(user=USER)
    stage.up(user=USER)
    rows = stage.status(user=USER)
    assert {row["state"] for row in rows.values()} == {"serving"}
    assert len(rows) == 60


def private_memory(pids: list[int]) -> float:
    """Return the mean private memory of processes in MiB."""
    totals = []
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        totals.append(
            sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
        )
    return sum(totals) / len(totals) / 1024


def test_three_hundred_services_serve_at_once(stage: Project) -> None:
    """In one run; each answers, and none takes more than 16 MiB of its own."""
    if inotify_limit() < 700:
        pytest.skip("needs `sysctl -w fs.inotify.max_user_instances=8192`: inotify's limit is not per namespace")
    stage.configure(pools=WIDE)
    stage.write("many.yaml", *[service(f"s{number:03}", port(443, NODE_PORT)) for number in range(300)])
    assert stage.locallb("host", "setup", "--yes", SUDO_UID=str(USER)).code == 0
    begun = time.monotonic()
    stage.up(user=USER)
    took = time.monotonic() - begun
    rows = stage.status(user=USER)
    assert {row["state"] for row in rows.values()} == {"serving"}
    places = [f"{row['addresses'][0]}@443" for row in rows.values()]
    assert requested(stage.space, *places) == [f"hello from {NODE_PORT}"] * 300
    pids = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cwd")
        if path.exists() and str(path.readlink()).startswith(str(stage.root))
    ]
    memory = private_memory(pids)
    print(f"300 Services in {took:.1f} s, {memory:.1f} MiB each")  # noqa: T201 - the figure is wanted
    assert len(pids) == 300
    assert memory <= 16
