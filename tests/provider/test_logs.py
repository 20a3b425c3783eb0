"""A proxy's log is bounded and recent: also that of an Envoy which logs without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.envoy import binary
from locallb.envoy.admin import EnvoyAdmin
from locallb.runtimes import processes
from locallb.storage import paths
from tests.support.provider import Driver, Wanted
from tests.support.waiting import becomes


@given(st.integers(0, 3 * binary.FULL), st.integers(8, 2000))
@settings(max_examples=30)
def test_a_log_that_has_grown_keeps_its_end(tmp_path_factory: pytest.TempPathFactory, size: int, length: int) -> None:
    """Whole lines, the last ones; one that hasn't grown stays."""
    directory = tmp_path_factory.mktemp("proxy")
    lines = [f"{number:0{length}}\n" for number in range(size // (length + 1))]
    (directory / binary.NAME).write_text("".join(lines))
    before = (directory / binary.NAME).stat().st_size
    assert binary.cut(directory) is (before >= binary.FULL)
    if before < binary.FULL:
        assert (directory / binary.NAME).stat().st_size == before
        return
    retained = (directory / binary.PREVIOUS).read_text()
    assert "".join(lines).endswith(retained)
    assert binary.RETAINED - length - 1 <= len(retained) <= binary.RETAINED
    assert set(map(len, retained.splitlines())) == {length}
    assert (directory / binary.NAME).stat().st_size == 0


@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_only_regular_log_files_are_truncated(tmp_path: Path, made: object) -> None:
    """A link above all: what it points to isn't ours to cut."""
    assert callable(made)
    (tmp_path / "a").mkdir()
    made(tmp_path / "a" / binary.NAME)
    before = Path("/etc/passwd").stat().st_size
    binary.cut_all(tmp_path)
    assert processes.last_output(tmp_path / "a" / binary.NAME) == ""
    assert Path("/etc/passwd").stat().st_size == before
    assert [path.name for path in (tmp_path / "a").iterdir()] == [binary.NAME]


def shout(directory: Path, until: int) -> None:
    """Have an Envoy log until its log is so large; every question is logged."""
    admin, log = EnvoyAdmin(directory), directory / binary.NAME

    def large() -> bool:
        for _ in range(20):
            admin._ask("GET", "/stats")
        return log.stat().st_size >= until

    becomes(large)


@pytest.mark.envoy
@pytest.mark.parametrize("by_read", [True, False])
def test_an_envoy_that_reached_the_limit_of_its_log_tells_news_again(
    driver: Driver, wanted: Wanted, *, by_read: bool
) -> None:
    """After a `read`, as every `up` does, or the loop's look: the last words are the last ones."""
    config, process, _ = driver.up(wanted)
    directory = Path(config["directory"])
    log = directory / binary.NAME
    EnvoyAdmin(directory)._ask("POST", "/logging?level=trace")
    shout(directory, processes.LOG_LIMIT)
    if by_read:
        assert driver.read("EnvoyProcess", process) is not None
    else:
        binary.cut_all(paths.proxies_root())
    assert 0 < (directory / binary.PREVIOUS).stat().st_size <= binary.RETAINED
    EnvoyAdmin(directory)._ask("GET", "/stats?filter=a_question_of_now")
    becomes(lambda: "a_question_of_now" in log.read_text(errors="replace"))
    assert log.stat().st_size < processes.LOG_LIMIT
