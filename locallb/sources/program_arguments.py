"""The configuration that a stack's program gave by itself, so that commands and `watch` know it without running it.

Written by the last update of a program that declares `LoadBalancers` with arguments of its own. Not here: the stack's
file, which has the configuration of all other programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from locallb.model.identities import Home
from locallb.safe_files import reader
from locallb.sources import SourceError
from locallb.storage import files, paths

NAME = "program-arguments"
"""Of the file; sources' readings end with `.json`."""
FORMAT = 1


def file_of(home: Home) -> Path:
    """Return the file of a stack with its program's arguments."""
    return paths.stack_directory(home) / NAME


def write(home: Home, configuration: Mapping[str, object]) -> None:
    """Write down what the program said. Raises SourceError."""
    text = json.dumps({"format": FORMAT, "configuration": configuration}, indent=1, sort_keys=True) + "\n"
    try:
        if files.read(file_of(home)) != text:
            paths.private_directory(file_of(home).parent)
            files.write(file_of(home), text)
    except (files.FilesError, paths.PlaceError) as error:
        raise SourceError(f"the arguments of the program can't be written down: {error}") from None


def forget(home: Home) -> None:
    """Remove it: the stack's file has the configuration. Raises SourceError."""
    try:
        file_of(home).unlink(missing_ok=True)
    except OSError as error:
        raise SourceError(f"{file_of(home)} can't be removed: {error.strerror}; remove it") from None


def read(home: Home) -> Mapping[str, object] | None:
    """Return what the program said last; None if it leaves that to the stack's file. Raises SourceError."""
    path = file_of(home)
    try:
        text = files.read(path, reader.STATE)
        return None if text is None else _parsed(json.loads(text))
    except files.FilesError as error:
        raise SourceError(f"what the program says can't be told: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(f"{path} isn't as local-lb writes it ({error}): remove it, then run `locallb up`") from None


def _parsed(document: Mapping[str, object]) -> Mapping[str, object]:
    """Read what was written. Raises ValueError, KeyError or TypeError."""
    configuration = document["configuration"]
    if document["format"] != FORMAT or not isinstance(configuration, dict):
        raise ValueError(f"its format is {document['format']!r}, and this version knows {FORMAT}")
    return configuration
