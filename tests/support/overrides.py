"""What clients see of faults, and what a stage's proxies have of them."""

from __future__ import annotations

from tests.support.backends import ask
from tests.support.stages import Stage

FAILS = {"ConnectionResetError", "BrokenPipeError", ""}


def answer(address: str) -> str:
    """Return what a client gets, or how it fails."""
    try:
        return ask(address, 8080)
    except OSError as error:
        return type(error).__name__


def orders_of(play: Stage) -> list[str]:
    """Return the files of orders that there are."""
    return [name for name in play.files() if name.endswith("/orders")]


def listeners(play: Stage) -> bytes:
    """Return what the only proxy is told of listeners."""
    (directory,) = (play.state_home / "proxies").iterdir()
    return (directory / "lds.json").read_bytes()
