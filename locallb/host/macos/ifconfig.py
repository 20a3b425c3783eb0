"""The only calls of macOS: what lo0 has, and changing that, by `ifconfig`. Nobody has tried them on a Mac."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from locallb.host.macos.aliases import DEVICE, adding, parsed, removing
from locallb.model.errors import ClientError
from locallb.model.identities import IPAddress

_SECONDS = 10


class AliasError(ClientError):
    """lo0 can't be read or changed: one sentence."""


def aliases() -> frozenset[IPAddress]:
    """Return the addresses of lo0. Raises AliasError."""
    return parsed(_run(("ifconfig", DEVICE)))


def change(address: IPAddress, *, wanted: bool) -> None:
    """Give lo0 an address, or take it away. Raises AliasError."""
    _run(adding(address) if wanted else removing(address))


def _run(words: Sequence[str]) -> str:
    try:
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        told = next(iter(error.stderr.splitlines()), f"exit code {error.returncode}")
        raise AliasError(f"`{' '.join(words)}` failed: {told}; run this as root") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise AliasError(f"`{' '.join(words)}` can't be run: {error}") from None
    return done.stdout
