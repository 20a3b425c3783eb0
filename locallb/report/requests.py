"""Sample requests: reading a file of them, and which ones go elsewhere after a change. Pure.

A file has a request a line, as `curl` takes it: `http://shop.test/cart`, `POST http://shop.test/cart -H 'x-user: a'`,
with `#` before comments; or it is YAML, a list of such lines or of objects with `url`, `method` and `headers`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

import yaml

from locallb.model.fields import object_of, text_of
from locallb.model.http_requests import HttpRequest
from locallb.model.texts import shown
from locallb.planning.explanation import explain
from locallb.planning.planned import Plan
from locallb.report.changes import RequestChange, SampleRequests
from locallb.safe_files import load_yaml

_HEADER_OPTION = "-H"
_FIELDS = frozenset({"url", "method", "headers"})


def parse_requests(text: str, *, is_yaml: bool) -> tuple[HttpRequest, ...]:
    """Read the requests of a file. Raises ValueError with the line or the number, and what is wrong."""
    found = tuple(_each(_objects(text) if is_yaml else _lines(text)))
    if not found:
        raise ValueError("it has no requests; write one a line, such as `GET http://shop.test/cart`")
    return found


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and not line.startswith("#"):
            yield f"line {number}", line


def _objects(text: str) -> Iterator[tuple[str, object]]:
    try:
        listed = load_yaml(text, yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise ValueError("it isn't YAML; write a list of requests") from None
    if not isinstance(listed, list):
        raise ValueError("it is no list; write one of requests, such as `- GET http://shop.test/cart`")  # noqa: TRY004 - a mistake in a file
    yield from ((f"request {number}", each) for number, each in enumerate(listed, 1))


def _each(written: Iterable[tuple[str, object]]) -> Iterator[HttpRequest]:
    for where, value in written:
        try:
            yield _from_object(value) if isinstance(value, Mapping) else _from_line(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def _from_line(value: object) -> HttpRequest:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} isn't a request; write a method and a URL")  # noqa: TRY004 - as above
    headers: list[str] = []
    *method, url = _terms(value, headers)
    if len(method) > 1:
        raise ValueError(f"{shown(value)} has more than a method and a URL; write headers as -H 'name: value'")
    return HttpRequest.parse(url, method[0] if method else "GET", headers)


def _terms(line: str, headers: list[str]) -> list[str]:
    """Split a line into its terms without headers, which are added to `headers`."""
    try:
        terms = iter(shlex.split(line))
    except ValueError as error:
        raise ValueError(f"{shown(line)}: {str(error).lower()}") from None
    found = []
    for term in terms:
        if term == _HEADER_OPTION:
            headers.append(next(terms, ""))
        else:
            found.append(term)
    if not found:
        raise ValueError(f"{shown(line)} has no URL")
    return found


def _from_object(value: Mapping[object, object]) -> HttpRequest:
    if unknown := [name for name in value if name not in _FIELDS]:
        raise ValueError(f"{shown(unknown[0])} is unknown; a request has url, method and headers")
    headers = [f"{name}: {text}" for name, text in object_of(value.get("headers")).items()]
    return HttpRequest.parse(text_of(value.get("url")), text_of(value.get("method", "GET")), headers)


def compared_requests(old: Plan, new: Plan, requests: Iterable[HttpRequest]) -> SampleRequests:
    """Find the requests that go elsewhere, between two plans of manifests alone."""
    listed = tuple(requests)
    before, after = ([explain(plan, request, hostless=True).result for request in listed] for plan in (old, new))
    rows = zip(map(str, listed), before, after, strict=True)
    return SampleRequests(len(listed), tuple(RequestChange(*row) for row in rows if row[1] != row[2]))
