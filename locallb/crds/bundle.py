"""Reads the release of Gateway API's definitions that is shipped with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TypeAlias

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.model.fields import JsonObject

Document: TypeAlias = JsonObject
FILE = "gateway-api.json.xz"


class BundleError(ClientError):
    """The carried definitions can't be read: one sentence."""


class Bundle(Struct, frozen=True):
    """One release."""

    version: str
    channels: Mapping[str, tuple[Document, ...]]
    """By channel: its CustomResourceDefinitions, then the policy that guards them and its binding."""


def carried() -> Bundle:
    """Read the release that this version of local-lb carries. Raises BundleError."""
    try:
        import lzma  # noqa: PLC0415 - a Python may have been built without it
    except ImportError:
        raise BundleError("this Python was built without lzma, which the definitions need; use another one") from None
    try:
        read = json.loads(lzma.decompress(files(__package__).joinpath(FILE).read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        sentence = f"{FILE} of the installed local-lb can't be read ({error!r:.100}); install local-lb again"
        raise BundleError(sentence) from None
    return Bundle(read["version"], {name: tuple(documents) for name, documents in read["channels"].items()})
