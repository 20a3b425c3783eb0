"""Texts that are nested or unfold without end: a sentence each, whichever file has them, never the process's end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli import completion
from locallb.cli.new_project import require_ours
from locallb.engine.state.project import load_config, load_project
from locallb.kubernetes.api.kubeconfig import read_content
from locallb.kubernetes.documents import read_documents
from locallb.model.texts import DEEPEST
from locallb.safe_files import load_yaml

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


UNFOLDING = {
    "lists": "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]",
    "objects": "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}, h: {0}, i: {0}, j: {0}}}",
    "merged": "{{<<: [{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]}}",
}


def _unfolding(shape: str, first: str = "{x: 1}") -> str:
    """Return an object each of whose fields has the one before ten times."""
    fields = [f"a{number}: &a{number} {UNFOLDING[shape].format(f'*a{number - 1}')}" for number in range(1, 12)]
    return f"{{a0: &a0 {first}, {', '.join(fields)}}}"


@pytest.mark.parametrize("read", [_project, _stack, _kubeconfig, _manifest])
@pytest.mark.parametrize("shape", UNFOLDING)
def test_aliases_that_unfold_without_end_are_one_sentence(
    shape: str, read: Callable[[Path, str], None], tmp_path: Path
) -> None:
    """Before what they stand for is made."""
    with pytest.raises(Exception, match="its aliases stand for more than 1048576 characters") as raised:
        read(tmp_path, _unfolding(shape))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("read", [_project, _stack])
def test_aliases_inside_of_what_they_name_are_bounded_as_well(
    read: Callable[[Path, str], None], tmp_path: Path
) -> None:
    """Whatever else follows there."""
    more = ", ".join(f"k{number}: 1" for number in range(2_000))
    with pytest.raises(Exception, match="its aliases stand for more than"):
        read(tmp_path, f"&a {{x: {_unfolding('merged', first='{<<: *a}')}, {more}}}")


def test_a_project_that_unfolds_is_left_to_the_command_that_needs_it(tmp_path: Path) -> None:
    """Whose it is isn't asked of a text that can't be read."""
    (tmp_path / "Pulumi.yaml").write_text(f"{PROJECT}x: {_unfolding('lists')}\n")
    require_ours(tmp_path)


@given(st.integers(1, DEEPEST))
def test_whatever_is_less_deep_is_read(depth: int) -> None:
    """As the parser reads it."""
    text = SHAPES["lists"](depth)
    assert load_yaml(text, yaml.CSafeLoader) == yaml.load(text, yaml.CSafeLoader)
