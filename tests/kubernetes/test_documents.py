"""YAML and JSON become plain data as Kubernetes' tools understand them; files made to harm are refused."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from locallb.kubernetes.documents import DocumentError, Repeated, read_documents


def values(text: str | bytes, *, is_json: bool = False) -> list[object]:
    data = text.encode() if isinstance(text, str) else text
    return [document.value for document in read_documents(data, is_json=is_json)]


def mistake(text: str | bytes, *, is_json: bool = False) -> tuple[int, str]:
    """Return the line and the words of the mistake in a text."""
    with pytest.raises(DocumentError) as caught:
        values(text, is_json=is_json)
    return caught.value.line, caught.value.what


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8080", 8080),
        ("-1", -1),
        ("0", 0),
        ("0644", 0o644),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("9" * 5000, "9" * 5000),
        ("1.2.3", "1.2.3"),
        ("127.77.0.5", "127.77.0.5"),
        ("22:22", "22:22"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("0x", "0x"),
        (".", "."),
        ("yes", True),
        ("Off", False),
        ("true", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("y", "y"),
        ("nullable", "nullable"),
        ("=", "="),
        (".inf", ".inf"),
        ('"8080"', "8080"),
        ("'yes'", "yes"),
        ("!!str 8080", "8080"),
        ('!!int "8080"', 8080),
        ("!Ref web", "web"),
        ("!vault |\n  secret\n", "secret\n"),
        ("!Sub [a, b]", ["a", "b"]),
        ("!!binary aGk=", "aGk="),
        ("|\n  a\n  b\n", "a\nb\n"),
        (">-\n  a\n  b\n", "a b"),
        ("{a: 1, b: [x, {c: }]}", {"a": 1, "b": ["x", {"c": None}]}),
        ("80: x\nyes: y\n~: z", {"80": "x", "yes": "y", "~": "z"}),
        ("? a\n: 1", {"a": 1}),
        ('{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
    ],
)
def test_plain_scalars_mean_what_they_mean_to_kubernetes(text: str, value: object) -> None:
    """Dates and addresses stay texts, keys are always texts, unknown tags are ignored."""
    assert values(f"--- {text}\n" if "\n" not in text else f"---\n{text}") == [value]


def test_a_stream_has_any_number_of_documents() -> None:
    """Empty ones and comments among them, as helm and kustomize print."""
    text = "---\n# Source: a/b.yaml\n---\na: 1\n---\n# nothing\n---\nnull\n...\n---\nb: 2\n"
    assert [value for value in values(text) if value] == [{"a": 1}, {"b": 2}]
    assert values("") == []
    assert values("# only a comment\n") == []


def test_windows_line_ends_and_byte_order_marks_are_understood() -> None:
    """PowerShell's `>` writes UTF-16."""
    assert values(b"\xef\xbb\xbfa: 1\r\nb: x\r\n") == [{"a": 1, "b": "x"}]
    assert values("a: ä\r\n".encode("utf-16")) == [{"a": "ä"}]
    assert values("\ufeff{}", is_json=True) == [{}]


def test_aliases_and_merge_keys_work() -> None:
    """An object's own keys win, then earlier sources."""
    text = (
        "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {b: 3, <<: [*y, *x]}\n"
        "list: &l [*x, 1]\nagain: *l\nkey: &k name\n? *k\n: 5\n"
    )
    (value,) = values(text)
    assert value == {
        "x": {"a": 1, "b": 1},
        "y": {"b": 2, "c": 2},
        "z": {"b": 3, "c": 2, "a": 1},
        "list": [{"a": 1, "b": 1}, 1],
        "again": [{"a": 1, "b": 1}, 1],
        "key": "name",
        "name": 5,
    }
    assert values("a: &a 1\n---\nb: &a 2\nc: *a\n")[1] == {"b": 2, "c": 2}
    assert values('"<<": 1') == [{"<<": 1}]


def test_a_key_that_stands_twice_is_noticed_and_the_last_counts() -> None:
    """As in Kubernetes' own decoders."""
    (document,) = read_documents(b"a: 1\nb: {c: 1, c: 2}\na: 3\n", is_json=False)
    assert document.value == {"a": 3, "b": {"c": 2}}
    assert document.repeated == (Repeated(2, "c"), Repeated(3, "a"))


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "did not find expected ',' or ']'"),
        ("a: b: c\n", 1, "mapping values are not allowed in this context"),
        ("a:\n\t- x\n", 2, "found character that cannot start any token"),
        ("a: *x\n", 1, "an alias names no anchor before it"),
        ("a: 1\nb: &x [*x]\n", 2, "an alias stands inside of what it names"),
        ("a: &x {<<: *x}\n", 1, "an alias stands inside of what it names"),
        ("a: 1\n<<: x\n", 2, "`<<` merges something that is no object"),
        ("? [a]\n: 1\n", 1, "a key is an object or a list; keys are texts"),
        ("a: &a [1]\n? *a\n: 1\n", 2, "a key is an alias of something that is no text"),
        ("[" * 201, 1, "it is nested deeper than 200"),
        ("a: 'open\n", 2, "found unexpected end of stream"),
        ("{{- if .Values.x }}\n", 1, "a key is an object or a list; keys are texts"),
        ("ok: 1\n---\na: {\n", 4, "did not find expected node content"),
    ],
)
def test_broken_yaml_is_reported_with_its_line(text: str, line: int, what: str) -> None:
    """In libyaml's words, which quote nothing of the file."""
    assert mistake(text) == (line, what)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{"a": 1,\n}', 2, "Expecting property name enclosed in double quotes"),
        ('{"a": 1}\nrest', 2, "Expecting value"),
        ('{"a":\n\n' + "9" * 5000 + "}", 1, "it has a number of thousands of digits"),
        ("[" * 100_000, 1, "it is nested deeper than 200"),
        ("[" * 201 + "]" * 201, 1, "it is nested deeper than 200"),
    ],
)
def test_broken_json_is_reported_with_its_line(text: str, line: int, what: str) -> None:
    """Like YAML."""
    assert mistake(text, is_json=True) == (line, what)


def test_bytes_that_are_no_text_are_reported() -> None:
    """With their line; control characters as well."""
    assert mistake(b"a: 1\nb: \xff\n") == (2, "it isn't UTF-8")
    assert mistake(b"a: \x00\n")[1] == "unacceptable character #x0000: control characters are not allowed"


def test_json_values_may_follow_each_other() -> None:
    """As a stream of kubectl has them."""
    assert values('{"a": 1}\n{"b": 2} [3]\n', is_json=True) == [{"a": 1}, {"b": 2}, [3]]
    assert values(" \n", is_json=True) == []


def test_aliases_that_unfold_without_end_are_refused_at_once() -> None:
    """A billion laughs: ten levels of ten aliases each."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert mistake("\n".join(lines)) == (6, "its aliases stand for more than 1048576 characters")


TEXTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=12)
FLOAT_WITHOUT_POINT = re.compile(r"[-+]?\d+[eE][-+]?\d+")
"""A number to everybody (YAML 1.2, Go), but not to PyYAML, which therefore leaves such a text unquoted."""
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS
DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@given(st.lists(DATA, max_size=3))
@example(["2026-01-01", {"yes": "no", "<<": {}, "a": "1e3"}])
def test_written_documents_are_read_back(documents: list[object]) -> None:
    """As JSON, and as YAML that quotes what needs quotes."""
    as_json = "\n".join(json.dumps(document) for document in documents)
    assert values(as_json, is_json=True) == documents
    as_yaml = "".join(f"---\n{json.dumps(document, ensure_ascii=False)}\n" for document in documents)
    assert values(as_yaml) == documents


@given(DATA)
def test_documents_of_other_yaml_writers_are_read(data: object) -> None:
    """PyYAML quotes by the rules of YAML 1.1, like many tools."""
    try:
        text = yaml.safe_dump(data, allow_unicode=True)
        assume(not FLOAT_WITHOUT_POINT.search(text))
        back = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    if back == data:
        assert values(text) == [data]


YAMLISH = st.text("ab:-[]{}&*!?|>'\"%,<# \n\t0x", max_size=60).map(str.encode)


@given(st.binary(max_size=60) | YAMLISH, st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, is_json: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    """Nothing else ever comes out."""
    try:
        what = str(read_documents(data, is_json=is_json) and "")
    except DocumentError as error:
        what = error.what
    assert what.isprintable()
