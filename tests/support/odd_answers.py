"""Answers that no Kubernetes API gives, but somebody may."""

from __future__ import annotations

import json

GOOD = b'{"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []}'
ENDLESS = "no page after this one"
"""It is odd only when it comes again."""


def listing(**fields: object) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


ODD_LISTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>log in first</html>",
    "a number": b"7",
    "null": b"null",
    "an object": b"{}",
    "a list": b"[]",
    "cut": b'{"kind": "NodeList", "ite',
    "no metadata": json.dumps({"items": []}).encode(),
    "null metadata": listing(metadata=None),
    "metadata as a text": listing(metadata="x"),
    "no version": listing(metadata={}),
    "a version that is none": listing(metadata={"resourceVersion": 1}),
    "no items": json.dumps({"metadata": {"resourceVersion": "1"}}).encode(),
    "items as a text": listing(items="x"),
    "an item as a text": listing(items=["x"]),
    "an item that is null": listing(items=[None]),
    "an item without metadata": listing(items=[{}]),
    "an item with null metadata": listing(items=[{"metadata": None}]),
    "an item without a name": listing(items=[{"metadata": {}}]),
    "an item with a list for a name": listing(items=[{"metadata": {"name": []}}]),
    "an item of another kind": listing(items=[{"kind": "Pod", "metadata": {"name": "x"}}]),
    "another list": listing(kind="PodList"),
    "a status": json.dumps({"kind": "Status", "metadata": {}, "status": "Success"}).encode(),
    ENDLESS: listing(metadata={"resourceVersion": "1", "continue": "x"}),
    "a page that is no text": listing(metadata={"resourceVersion": "1", "continue": 7}),
    "too deep": b"[" * 100_000,
    "a number that is too long": b'{"metadata": {"resourceVersion": ' + b"1" * 10_000 + b"}}",
    "no UTF-8": b"\xff\xfe\xfa",
}
NAMED = {"metadata": {"name": "x", "resourceVersion": "2"}}


def line(sort: object, about: object) -> bytes:
    return json.dumps({"type": sort, "object": about}).encode() + b"\n"


ODD_WATCHES: dict[str, bytes] = {
    "no JSON": b"hello\n",
    "an empty line": b"\n",
    "an array": b"[]\n",
    "null": b"null\n",
    "cut": b'{"type": "ADD',
    "no type": json.dumps({"object": NAMED}).encode() + b"\n",
    "an unknown type": line("RENAMED", NAMED),
    "a type that is a list": line([], NAMED),
    "no object": json.dumps({"type": "ADDED"}).encode() + b"\n",
    "an object that is a text": line("ADDED", "x"),
    "an error without an object": b'{"type": "ERROR"}\n',
    "an error that is a text": line("ERROR", "x"),
    "an error": line("ERROR", {"code": 500, "message": "no"}),
    "no metadata": line("MODIFIED", {}),
    "null metadata": line("DELETED", {"metadata": None}),
    "no version": line("ADDED", {"metadata": {"name": "x"}}),
    "no name": line("ADDED", {"metadata": {"resourceVersion": "2"}}),
    "another kind": line("ADDED", {**NAMED, "kind": "Pod"}),
    "a bookmark without a version": line("BOOKMARK", {"metadata": {}}),
    "too deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b"\xff\xfe\xfa\n",
}


def odd_page(token: str) -> bytes:
    """Write an empty page of a list that names the next one."""
    return json.dumps({"metadata": {"resourceVersion": "1", "continue": token}, "items": []}).encode()
