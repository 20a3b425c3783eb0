"""Texts that are nested without end: one sentence each, whichever file has them, and never the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli import completion
from locallb.engine.state.project import load_config, load_project
from locallb.guarded.nesting import load_yaml
from locallb.kubernetes.access.kubeconfig_file import read_content
from locallb.kubernetes.parsing.documents import read_documents
from locallb.model.texts import DEEPEST

PROJECT = "name: p\nruntime: python\nbackend: {url: 'file://.'}\n"
SHAPES: dict[str, Callable[[int], str]] = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: "{a: " * depth + "}" * depth,
    "lines": lambda depth: "\n  " + "- " * depth + "x",
    "open": lambda depth: "[" * depth,
    "tagged": lambda depth: "!!python/object:os.system " + "[" * depth,
    "JSON": lambda depth: '{"a":' * depth + "1" + "}" * depth,
}


def _project(directory: Path, text: str) -> None:
    (directory / "Pulumi.yaml").write_text(f"{PROJECT}x: {text}\n")
    load_project(directory, {})


def _stack(directory: Path, text: str) -> None:
    (directory / "Pulumi.yaml").write_text(PROJECT)
    (directory / "Pulumi.dev.yaml").write_text(f"config:\n  a: {text}\n")
    load_config(load_project(directory, {}), "dev")


def _kubeconfig(directory: Path, text: str) -> None:
    (directory / "config").write_text(f"kind: Config\nclusters: {text}\n")
    read_content(directory / "config")


def _manifest(_directory: Path, text: str) -> None:
    read_documents(f"spec: {text}\n".encode(), is_json=False)


@pytest.mark.parametrize("read", [_project, _stack, _kubeconfig, _manifest])
@pytest.mark.parametrize("depth", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_that_is_nested_without_end_is_one_sentence(
    shape: str, depth: int, read: Callable[[Path, str], None], tmp_path: Path
) -> None:
    """With how deep it may be."""
    with pytest.raises(Exception, match=f"nested deeper than {DEEPEST}") as raised:
        read(tmp_path, SHAPES[shape](depth))
    assert not isinstance(raised.value, RecursionError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_words_are_completed_beside_such_files(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig of that kind offers no contexts."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text(f"contexts: {SHAPES[shape](100_000)}\n")
    assert completion._contexts() == []


@given(st.integers(1, DEEPEST))
def test_whatever_is_less_deep_is_read(depth: int) -> None:
    """As the parser reads it."""
    text = SHAPES["lists"](depth)
    assert load_yaml(text, yaml.CSafeLoader) == yaml.load(text, yaml.CSafeLoader)
