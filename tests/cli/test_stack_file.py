"""Edits of a stack's file: what changes, and that nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.stack_file import REMOVED, NotEditable, edited, with_items
from locallb.cli.stack_sources import SOURCES_PATH, with_sources

LAYOUTS = [
    "{i}{k}: true\n",
    "{i}{k}: [a, b]  # why\n",
    "{i}{k}:\n{i}  - a\n{i}  # between\n{i}  - b: [1]\n{i}    c: 2\n",
    "{i}{k}:   # behind the key\n{i}- a\n",
    "{i}{k}: |\n{i}    text\n{i}    more\n",
    "{i}{k}: {{a: 1,\n{i}    b: 2}}\n",
    '{i}"{k}": "two\n{i}  lines"  # why\n',
    "{i}{k}:\n",
    "{i}{k}:\n{i}  a:\n{i}    b: x\n\n{i}  c: y\n",
]
COMMENTS = ["\n", "# a comment\n", "  # one further in\n", "{i}# and: one, that is - no key\n"]
VALUES: list[object] = [
    True,
    "off",
    "127.0.0.1:9477",
    "a: b # c",
    "two\nlines",
    ["shop", "web"],
    [],
    {"team": "web"},
    [{"name": "default", "addresses": ["127.77.0.0/27"]}, {"name": "ü", "addresses": []}],
    {"zones": [{"zone": "test", "embedded": True}], "ttl": 5},
    [["a"], [["b"]]],
]
KEYS = [f"local-lb:{name}" for name in ("one", "two", "three", "four", "new", "newer")]
TOP = ["", "# by hand\nencryptionsalt: v1:abc=\n\n", "---\n"]
END = ["", "# the end\n", "other: 1\n"]
LINES = st.tuples(st.sampled_from(LAYOUTS), st.lists(st.sampled_from(COMMENTS), max_size=2))
WRITTEN = st.tuples(st.permutations(KEYS[:4]), st.lists(LINES, min_size=4, max_size=4)).map(
    lambda both: [(key, layout, comments) for key, (layout, comments) in zip(*both, strict=True)]
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([REMOVED, REMOVED, *VALUES])), min_size=1, max_size=6
)


@given(
    WRITTEN,
    CHANGES,
    st.tuples(st.sampled_from(["  ", "    "]), st.sampled_from(["\n", "\r\n"])),
    st.tuples(st.sampled_from(TOP), st.sampled_from(END)),
)
def test_any_sequence_of_changes_leaves_every_other_line(
    written: Sequence[tuple[str, str, list[str]]],
    changes: Sequence[tuple[str, object]],
    spelling: tuple[str, str],
    around: tuple[str, str],
) -> None:
    """Byte for byte: without what was changed, the file is as if that had never been in it."""
    (indent, newline), (top, end) = spelling, around

    def whole(without: set[str]) -> str:
        entries = ("".join(["" if key in without else layout, *comments]) for key, layout, comments in written)
        keys = (key for key, _, _ in written)
        lines = [entry.format(i=indent, k=key) for entry, key in zip(entries, keys, strict=True)]
        return "".join([top, "config:\n", *lines, end]).replace("\n", newline)

    text = whole(set())
    expected = yaml.safe_load(text)["config"]
    for key, value in changes:
        if value is not REMOVED:
            expected[key] = value
        elif key in expected:
            del expected[key]
        else:
            continue
        text = edited(text, ("config", key), value)
        read = yaml.safe_load(text)["config"] or {}
        assert (read, [*read]) == (expected, [*expected])
    touched = {key for key, _ in changes}
    for key in touched & {*expected}:
        text = edited(text, ("config", key), REMOVED)
    assert text == whole(touched)


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("", 1, "config:\n  k: 1\n"),
        ("# only this", 1, "# only this\nconfig:\n  k: 1\n"),
        ("salt: x", 1, "salt: x\nconfig:\n  k: 1\n"),
        ("config:\n# none\n", [1], "config:\n  k: [1]\n# none\n"),
        ("config: {}  # none\n", 1, "config:  # none\n  k: 1\n"),
        ("config: {a: 1}\n", 2, "config:\n  a: 1\n  k: 2\n"),
        ("config:\n  k: 1  # why\n", 2, "config:\n  k: 2  # why\n"),
        ("\ufeffconfig:\n  k: 1  # why\n", 2, "\ufeffconfig:\n  k: 2  # why\n"),
        ("config:\n  k:   1", 2, "config:\n  k:   2"),
        ("config:\n  k: 1", [{"a": 1}], "config:\n  k:\n    - a: 1\n"),
        ("config:\n  k: 1 # why\n  l: 2\n", [{"a": 1}], "config:\n  k: # why\n    - a: 1\n  l: 2\n"),
        ("config:\n  k: # why\n    - a: 1\n  l: 2\n", 3, "config:\n  k: 3 # why\n  l: 2\n"),
        ("config:\n  k: &x 1\n  l: 2\n", 3, "config:\n  k: 3\n  l: 2\n"),
        ("config:\n  a: 1\n  # the last\n\nsalt: x\n", 3, "config:\n  a: 1\n  k: 3\n  # the last\n\nsalt: x\n"),
        ("config:\n  k: 1\n# end\n", REMOVED, "config:\n# end\n"),
        ("config:\n  a: 0\n  k:\n    - 1\n  # of b\n  b: 2\n", REMOVED, "config:\n  a: 0\n  # of b\n  b: 2\n"),
    ],
)
def test_a_key_is_changed_where_it_is_written(before: str, value: object, after: str) -> None:
    """A new one comes behind the last."""
    assert edited(before, ("config", "k"), value) == after


@pytest.mark.parametrize(
    "text",
    [
        "config: {a: 1, # why\n  b: 2}\n",
        "config:\n  k: &x [1]\n  l: *x\n",
        "config: *x\n",
        "[config]\n",
        "config: 1\n",
        "config: [a]\n",
        "{config: {k: 1}}\n",
        "config:\n  k: 1\n---\nconfig:\n  k: 2\n",
        "config:\n  ? k\n  : 1\n",
    ],
)
def test_what_cannot_be_changed_alone_is_refused(text: str) -> None:
    """Nothing is guessed, and nothing is lost."""
    with pytest.raises((NotEditable, yaml.YAMLError)):
        edited(text, ("config", "k"), 2)


def test_texts_that_older_yaml_has_as_booleans_stay_texts() -> None:
    """As the official command line reads them, also in brackets that are written anew."""
    changed = edited("config: {k: 1, region: no}\n", ("config", "k"), 2)
    assert changed == "config:\n  k: 2\n  region: 'no'\n"
    changed = with_sources("config:\n  local-lb:sources:\n    - kind: [on]\n", [{"kind": ["off"]}])
    assert yaml.safe_load(changed)["config"]["local-lb:sources"] == [{"kind": ["on", "off"]}]


LISTS = [
    "a:\n  - x: 1  # first\n    y: 2\n  # between\n  - z\n# end\n",
    "a:\n- x: 1\n  y: 2\n\n- z\nb: 1\n",
    "a: [{x: 1, y: 2}, z]\n",
    'a: \'[{"x": 1, "y": 2}, "z"]\'\n',
]


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [{"x": 1, "y": 2}, "z"]),
        ({0: REMOVED}, ["z"]),
        ({1: REMOVED}, [{"x": 1, "y": 2}]),
        ({2: "n", 3: {"m": 1}}, [{"x": 1, "y": 2}, "z", "n", {"m": 1}]),
        ({0: REMOVED, 1: {"k": ["a"]}, 2: "n"}, [{"k": ["a"]}, "n"]),
        ({0: REMOVED, 1: REMOVED}, []),
    ],
)
def test_items_of_a_list_are_changed_by_their_numbers(text: str, changes: dict[int, object], expected: object) -> None:
    """In whatever form they are listed."""
    changed = yaml.safe_load(with_items(text, ("a",), changes))
    found: Any = changed.pop("a")
    assert (yaml.safe_load(found) if isinstance(found, str) else found) == expected
    assert changed == {key: value for key, value in yaml.safe_load(text).items() if key != "a"}


def test_items_that_stay_keep_their_comments() -> None:
    """Also those between them."""
    changed = with_items(LISTS[0], ("a",), {0: REMOVED, 2: {"m": [1], "n": 2}})
    assert changed == "a:\n  # between\n  - z\n  - m: [1]\n    n: 2\n# end\n"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "- kind: [a] # mine\n    # why\n    classes: false # so",
            "- kind: [a, b] # mine\n    # why\n    classes: false # so",
        ),
        ("- classes: false # so\n    kind: [a] # mine", "- classes: false # so\n    kind: [a, b] # mine"),
        ("- kind:\n    - a # mine", "- kind:\n    - a # mine\n    - b"),
        ("- {kind: [a], classes: false} # mine", "- kind: [a, b] # mine\n    classes: false"),
    ],
)
def test_a_source_that_gets_a_cluster_keeps_its_comments(kind: str, expected: str) -> None:
    """Also when it loses it again."""
    text = f"config:\n  local-lb:sources:\n  # first\n  {kind}\n  # last\n"
    changed = with_sources(text, [{"kind": ["b"]}])
    assert changed == text.replace(kind, expected)
    entry = yaml.safe_load(text)["config"]["local-lb:sources"][0]
    if not kind.startswith("- {"):
        assert with_items(changed, SOURCES_PATH, {0: entry}) == text


@pytest.mark.parametrize(
    ("kind", "added", "expected"),
    [
        ("all", ["shop"], "all"),
        (["shop"], ["shop"], ["shop"]),
        (["shop"], ["more", "shop"], ["shop", "more"]),
        (["shop"], "all", "all"),
        ("all", "all", "all"),
    ],
)
def test_a_stack_has_one_source_of_kind(kind: object, added: object, expected: object) -> None:
    """With what else its entry says."""
    text = yaml.safe_dump({"config": {"local-lb:sources": [{"kind": kind, "classes": False}, {"manifests": "m"}]}})
    changed = with_sources(text, [{"kind": added}, {"manifests": "m"}])
    entries = yaml.safe_load(changed)["config"]["local-lb:sources"]
    assert entries == [{"kind": expected, "classes": False}, {"manifests": "m"}]
    assert (changed == text) == (kind == expected)
