"""The log of a Service for readers of the page: read while there are some, bounded, and closed when they go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from locallb.cli.watching import page_logs
from locallb.cli.watching.page_logs import RETAINED, LogReader, PageLogs
from locallb.envoy.listeners import CLOSED, GATE, gate
from locallb.planning.planned import Plan
from locallb.storage.proxy_directories import Proxies
from tests.support.waiting import becomes
from tests.support.watch_story import planned, snapshot_of

WEB, API = "demo/shop/web", "demo/shop/api"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Have two Services, and directories of their proxies with a closed gate."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = planned(snapshot_of("web", "api")).plan
    for each in made.proxies:
        directory = Proxies.ours().path(each.proxy.id)
        directory.mkdir(parents=True)
        (directory / GATE).write_text(gate(CLOSED))
    return made


@pytest.fixture
def logs(plan: Plan) -> Iterator[PageLogs]:
    made = PageLogs(lambda: plan, lambda: True, lambda: None)
    made.start()
    yield made
    made.stop()


def are_open(plan: Plan) -> Sequence[bool]:
    """Return of which Services the gate lets lines pass."""
    paths = [Proxies.ours().path(each.proxy.id) / GATE for each in plan.proxies]
    return [path.read_text() != gate(CLOSED) for path in paths]


def message(reader: LogReader) -> dict[str, Any]:
    text = reader.read().decode()
    read: dict[str, Any] = json.loads(text.removeprefix("data: ")) if text else {}
    return read


def test_proxies_are_read_for_readers_alone(plan: Plan, logs: PageLogs) -> None:
    """Of the Services that they chose; several may read one."""
    assert are_open(plan) == [False, False]
    readers = [logs.open(WEB), logs.open(WEB)]
    becomes(lambda: sum(are_open(plan)) == 1)
    readers.append(logs.open(API))
    becomes(lambda: sum(are_open(plan)) == 2)
    for reader in readers[:2]:
        reader.close()
    becomes(lambda: sum(are_open(plan)) == 1)
    readers[2].close()
    becomes(lambda: sum(are_open(plan)) == 0)


def test_the_end_of_the_page_closes_all(plan: Plan, logs: PageLogs) -> None:
    logs.open(WEB)
    becomes(lambda: sum(are_open(plan)) == 1)
    logs.stop()
    becomes(lambda: sum(are_open(plan)) == 0)


def test_why_there_is_no_log_is_a_sentence(plan: Plan, logs: PageLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what has no proxy, and of a proxy that keeps none; it is tried again."""
    monkeypatch.setattr(page_logs, "INSPECTED", 0.05)
    odd = logs.open("../../etc")
    becomes(lambda: message(odd).get("notice") == "It has no proxy now.")
    gates = [Proxies.ours().path(each.proxy.id) / GATE for each in plan.proxies]
    for path in gates:
        path.rename(path.with_suffix(".aside"))
    reader = logs.open(WEB)
    becomes(lambda: "keeps no log yet" in message(reader).get("notice", ""))
    for path in gates:
        path.with_suffix(".aside").rename(path)
    becomes(lambda: sum(are_open(plan)) == 1)


def test_a_stack_without_logs_says_how_to_have_them(plan: Plan) -> None:
    made = PageLogs(lambda: plan, lambda: False, lambda: None)
    made.start()
    reader = made.open(WEB)
    becomes(lambda: "set local-lb:accessLogs to true" in message(reader).get("notice", ""))
    made.stop()


def test_a_slow_reader_loses_lines_which_are_counted() -> None:
    reader = LogReader(WEB, lambda _reader: None)
    assert reader.read() == b""
    for number in range(RETAINED + 7):
        reader.add(str(number))
    read = message(reader)
    assert (read["lines"], read["lost"]) == (list(range(7, RETAINED + 7)), 7)
    assert reader.read() == b""
