"""Which failures speak for themselves."""

from __future__ import annotations

import importlib

import pytest

from locallb.cli.failures import _TOLD, sentence


@pytest.mark.parametrize(("module", "kind"), _TOLD)
def test_a_known_failure_is_told_in_its_own_words(module: str, kind: str) -> None:
    """Modules are named as text, because those that aren't loaded stay so: each is there, with that class."""
    known = getattr(importlib.import_module(module), kind)
    further = type("Further", (known,), {"__init__": lambda *_: None, "__str__": lambda _: "the sentence"})
    assert sentence(further()) == "the sentence"
