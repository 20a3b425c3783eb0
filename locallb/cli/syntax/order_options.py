"""Options and arguments of the commands that order something."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

LONGEST = 7 * 24 * 3600
"""Seconds that a fault may be ordered for."""
_TIME = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)
_SIZES = (24 * 3600, 3600, 60, 1)


def add_fault(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what `fault` takes."""
    command.add_argument(
        "services", metavar="SERVICE", nargs="*", help="which ones; without options: list their faults"
    )
    fates = {
        "refuse": "is closed at once",
        "hang": "is never answered",
        "reset": "is closed once the client has sent something",
    }
    for name, fate in fates.items():
        text = f"this share of new connections {fate}, such as 10%%"
        command.add_argument(f"--{name}", metavar="SHARE", type=_share, default=0, help=text)
    command.add_argument(
        "--delay",
        metavar="TIME[:SHARE]",
        type=_parsed("Delay"),
        help="delay requests to a Gateway or an Ingress, such as 200ms, or 2s:10%%",
    )
    command.add_argument(
        "--status",
        metavar="CODE[:SHARE]",
        type=_parsed("Failure"),
        help="answer them with this instead of a backend, such as 503, or 503:10%%",
    )
    command.add_argument(
        "--for", dest="seconds", metavar="TIME", type=_time, default=_time("5m"), help="such as 90s or 1h (default: 5m)"
    )
    _add_backends(command, "with --down: this Node, Pod or address; may be repeated")
    command.add_argument("--down", action="store_true", help="treat the backends as if they refused connections")
    command.add_argument("--end", dest="ends", action="store_true", help="end it now; without SERVICE, end all faults")


def add_drain(command: argparse.ArgumentParser, _common: argparse.ArgumentParser) -> None:
    """Add what `drain` takes."""
    command.add_argument("services", metavar="SERVICE", nargs="*", help="which ones; without any: list what is drained")
    _add_backends(command, "only this Node, Pod or address; may be repeated")
    command.add_argument("--undo", action="store_true", help="allow new connections again; without SERVICE, for all")


def _add_backends(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--backend", dest="backends", metavar="NAME", action="append", default=[], help=text)


def _share(text: str) -> int:
    from locallb.model.faults import parse_share  # noqa: PLC0415 - most commands need none

    try:
        return parse_share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parsed(name: str) -> Callable[[str], object]:
    """Return what reads an option as a class of faults does."""

    def parsed(text: str) -> object:
        from locallb.model import faults  # noqa: PLC0415 - most commands need none

        try:
            return getattr(faults, name).parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _time(text: str) -> int:
    """Read a time in seconds."""
    match = _TIME.fullmatch(text)
    seconds = sum(int(number or 0) * size for number, size in zip(match.groups(), _SIZES, strict=True)) if match else 0
    if not 0 < seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 5m or 1h30m, and at most 7d")
    return seconds
