"""Readers of a log begin and end beside what others left: a used gate, a new directory, a place where nothing goes."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from locallb.envoy.listeners import CLOSED, GATE, SOCKET, gate
from locallb.storage import files
from locallb.storage import files as stamps
from locallb.traffic.reading import _PAUSE as PAUSE
from locallb.traffic.reading import ENOUGH, LogError, Tap, TrafficReading
from tests.support.descriptors import few_files
from tests.support.log_reading import LOCK, is_free


def directory_of_proxy(parent: Path, lines: int = CLOSED) -> Path:
    """Make a directory with a gate that lets so many lines pass."""
    directory = parent / "proxy"
    directory.mkdir()
    (directory / GATE).write_text(gate(lines))
    return directory


def open_gates() -> set[str]:
    """Return what a gate says that lets lines pass."""
    return {gate(ENOUGH), gate(ENOUGH + 1)}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("lines", [CLOSED, ENOUGH, ENOUGH + 1])
def test_a_gate_is_opened_with_another_number_than_a_killed_reader_left(tmp_path: Path, lines: int) -> None:
    """Envoy counts anew only for another number: with the same one no line would come."""
    directory = directory_of_proxy(tmp_path, lines)
    tap = Tap(directory)
    assert (directory / GATE).read_text() in open_gates() - {gate(lines)}
    tap.end()


def test_a_new_directory_at_the_same_path_is_read(tmp_path: Path) -> None:
    """As after `destroy` and `up`: the reader goes on there, and the lock and the socket are of the new one."""
    directory, reading = directory_of_proxy(tmp_path), TrafficReading()
    assert not list(reading.follow([directory]))
    before = reading.taps[directory]
    assert not list(reading.follow([directory]))
    assert reading.taps[directory] is before
    shutil.rmtree(directory)
    directory_of_proxy(tmp_path)
    assert not list(reading.follow([directory]))
    assert (directory / GATE).read_text() in open_gates()
    assert not is_free(directory)
    reading.end()
    assert (is_free(directory), (directory / SOCKET).exists()) == (True, False)


@pytest.mark.parametrize("act", ["renew", "shut", "end"])
def test_socket_and_gate_of_another_reader_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """Neither its socket goes, nor is its gate written."""
    directory = directory_of_proxy(tmp_path)
    old = Tap(directory)
    shutil.rmtree(directory)
    directory_of_proxy(tmp_path)
    new = Tap(directory)
    before = stamps.stamp((directory / GATE).stat())
    monkeypatch.setattr("locallb.traffic.reading.IDLE", 0)
    getattr(old, act)()
    assert stamps.stamp((directory / GATE).stat()) == before
    assert (directory / SOCKET).is_socket()
    new.end()
    old.end()


def no_socket(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Put something in the place of the socket."""
    (directory / SOCKET).mkdir()


def no_gate(_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **_options: object) -> None:
        raise files.FilesError("it can't be written: no space left")

    monkeypatch.setattr("locallb.traffic.reading.files.write", full)


def no_lock(directory: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a link in the place of the lock."""
    (directory / LOCK).symlink_to("elsewhere")


@pytest.mark.parametrize("hinder", [no_socket, no_gate, no_lock])
def test_a_beginning_that_fails_is_one_sentence_and_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hinder: object
) -> None:
    """Whoever tries again is not told that somebody else reads."""
    assert callable(hinder)
    directory, reading = directory_of_proxy(tmp_path), TrafficReading()
    hinder(directory, monkeypatch)
    before = open_files()
    for _ in range(3):
        (reported,) = reading.follow([directory])
        assert ("can't be" in reported, "\n" in reported, reading.taps) == (True, False, {})
    assert open_files() <= before
    assert not (directory / SOCKET).is_socket()


def test_a_beginning_that_fails_is_an_error_of_the_log(tmp_path: Path) -> None:
    """It names the proxy."""
    directory = directory_of_proxy(tmp_path)
    (directory / SOCKET).mkdir()
    with pytest.raises(LogError, match=f"the proxy in {directory} can't be listened to: "):
        Tap(directory)


def test_a_connection_for_which_there_is_no_descriptor_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried now and again, not as often as a processor can; with room it is read."""
    directory, reading, tries = directory_of_proxy(tmp_path), TrafficReading(), [0]
    assert not list(reading.follow([directory]))
    accept = TrafficReading._accept

    def counted(self: TrafficReading, tap: Tap) -> None:
        tries[0] += 1
        accept(self, tap)

    monkeypatch.setattr(TrafficReading, "_accept", counted)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(directory / SOCKET))
        with few_files(0):
            assert not list(reading.messages(0.5))
        assert 1 <= tries[0] <= 0.5 / PAUSE + 1
        client.sendall(b"POST / HTTP/1.1\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        assert next(iter(reading.messages(60.0)))[1] == b"x"
    reading.end()
