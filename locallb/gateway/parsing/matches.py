"""Parses the matches of a rule. An unservable match keeps everything that is understood.

Other parts are left out or, of a path, cut to the known beginning. So the match is never narrower than written, and its
precedence is the written one: by it the requests of an unserved rule are found. Not here: the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from locallb.gateway.parsing.fields import items, made
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway_rules import FIRST, Rank, path_rank, written_path_rank
from locallb.model.http_routes import GrpcMethod, Match, PathKind, PathMatch, ValueMatch
from locallb.model.texts import shown

_Value = TypeVar("_Value")
_MAX = 16
_MAX_PREFIXES = 256
"""Characters of a path's known beginning."""
_ODD_PATHS = ("//", "/./", "/../", "%2f", "%2F", "#")
_PLAIN = re.compile(r"[!-~]*")
_SPECIAL = frozenset("\\.[](){}*+?|^$")
_ESCAPES_AND_SETS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_EVERY_PATH = PathMatch(PathKind.PREFIX, "/")


class _PathType(StrEnum):
    EXACT = "Exact"
    PREFIX = "PathPrefix"
    REGEX = "RegularExpression"


class _Compared(StrEnum):
    EXACT = "Exact"
    REGEX = "RegularExpression"


class _Method(StrEnum):
    ANY = ""
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    DELETE = "DELETE"
    CONNECT = "CONNECT"
    OPTIONS = "OPTIONS"
    TRACE = "TRACE"
    PATCH = "PATCH"


class ReadMatch(NamedTuple):
    """A match, its precedence, and why it is broader than written, if it is."""

    match: Match
    rank: Rank
    problem: str = ""


def parse_match(path: str, item: object, *, is_grpc: bool) -> ReadMatch:
    """Read a match. Never raises."""
    problems: list[str] = []
    fields = _understood(problems, lambda: Fields.of(path, item))
    if fields is None:
        return ReadMatch(Match(), FIRST, problems[0])
    compared, rank = (_grpc_path if is_grpc else _path)(fields, problems)
    headers, many_headers = _values(fields, "headers", str.lower, problems)
    query, many_query = ((), 0) if is_grpc else _values(fields, "queryParams", str, problems)
    method = "" if is_grpc else _method(fields, problems)
    has_method = not is_grpc and bool(fields.get("method"))
    match = Match(compared, headers, query, method)
    return ReadMatch(match, (*rank, not has_method, -many_headers, -many_query), "; ".join(problems))


def _understood(problems: list[str], read: Callable[[], _Value]) -> _Value | None:
    """Return what is read; where it can't be, None, and note why."""
    try:
        return read()
    except FieldError as error:
        problems.append(str(error))
        return None


def _path(fields: Fields, problems: list[str]) -> tuple[PathMatch, tuple[int, int, int]]:
    inner = _understood(problems, lambda: fields.inner("path"))
    kind = _understood(problems, lambda: inner.choice("type", _PathType.PREFIX)) if inner else None
    value = _understood(problems, lambda: inner.text("value") or "/") if inner else None
    if inner is None or kind is None or value is None:
        return beginning_of_expression(value or ""), FIRST[:3]
    model_kind = PathKind(kind.value.removeprefix("Path"))
    compared = _understood(problems, lambda: _compared_path(inner, model_kind, value))
    if compared is None:
        is_expression = kind is _PathType.REGEX
        compared = beginning_of_expression(value) if is_expression else beginning_of_path(model_kind, value)
    return compared, written_path_rank(model_kind, value)


def _compared_path(fields: Fields, kind: PathKind, value: str) -> PathMatch:
    is_plain = kind is not PathKind.REGEX
    if is_plain and (any(sign in value for sign in _ODD_PATHS) or value.endswith(("/.", "/.."))):
        raise FieldError(f"{fields.at('value')} is {shown(value)}; give a path such as /cart, without . and .. in it")
    return made(fields, lambda: PathMatch(kind, value))


def beginning_of_path(kind: PathKind, value: str) -> PathMatch:
    """Match a path that the API refuses: exactly it if comparable all the same, else every path with its beginning."""
    try:
        return PathMatch(kind, value)
    except ValueError:
        return _beginning(_existing(value))


def beginning_of_expression(expression: str, *, ignores_case: bool = False) -> PathMatch:
    """Match all paths with the beginning that an expression requires, whatever its syntax."""
    return _beginning(_literal_prefix(expression), ignores_case=ignores_case)


def _beginning(existing: str, *, ignores_case: bool = False) -> PathMatch:
    """Match all paths with this beginning, which may end within an element."""
    try:
        expression = f"{'(?i)' if ignores_case else ''}{re.escape(existing)}.*"
        return PathMatch(PathKind.REGEX, expression) if existing.strip("/") else _EVERY_PATH
    except ValueError:  # RE2 is missing on this host
        return _EVERY_PATH


def _existing(value: str) -> str:
    """Return the beginning of a plain path up to what no path of a request has."""
    plain = _PLAIN.match(value)
    existing = re.split(r"[?#]", plain[0], maxsplit=1)[0] if plain else ""
    return existing[:_MAX_PREFIXES] if existing.startswith("/") else ""


def _literal_prefix(expression: str) -> str:
    """Return the plain text at the beginning of an expression."""
    text = expression.removeprefix("^")
    if _chooses(text):
        return ""
    existing, at = "", 0
    while at < len(text) and len(existing) < _MAX_PREFIXES:
        escaped = text[at] == "\\"
        literal = text[at + escaped : at + escaped + 1]
        if not literal or (literal.isalnum() if escaped else literal in _SPECIAL):
            break
        at += 1 + escaped
        if text[at : at + 1] in {"?", "*", "{"}:
            break
        existing += literal
    return _existing(existing)


def _chooses(expression: str) -> bool:
    """Return whether an expression may have a choice outside of groups, so that it has no beginning of its own."""
    depth = 0
    for character in _ESCAPES_AND_SETS.sub("", expression):
        depth += (character == "(") - (character == ")")
        if depth < 0 or (character == "|" and depth == 0):
            return True
    return depth != 0 and "|" in expression


def _grpc_path(fields: Fields, problems: list[str]) -> tuple[GrpcMethod | None, tuple[int, int, int]]:
    inner = _understood(problems, lambda: fields.inner("method"))
    kind = _understood(problems, lambda: inner.choice("type", _Compared.EXACT)) if inner else None
    if inner is None or kind is None:
        return None, FIRST[:3]
    regex, parts = kind is _Compared.REGEX, ["", ""]
    lengths = [0, 0]
    for number, name in enumerate(("service", "method")):
        text = _understood(problems, lambda name=name: inner.text(name))  # type: ignore[misc]
        lengths[number] = len(text or "")
        if text and _understood(problems, lambda text=text: made(inner, lambda: GrpcMethod(text, regex=regex))):  # type: ignore[misc]
            parts[number] = text
    if not any(lengths):
        return None, path_rank(None)
    return (GrpcMethod(parts[0], parts[1], regex) if any(parts) else None), (int(regex), -lengths[0], -lengths[1])


def _values(
    fields: Fields, name: str, of: Callable[[str], str], problems: list[str]
) -> tuple[tuple[ValueMatch, ...], int]:
    """Return the conditions of a list, the first of each name as the API specifies, and how many are written."""
    listed = _understood(problems, lambda: list(items(fields, name, _MAX)))
    named: dict[str, ValueMatch | None] = {}
    for item in listed or ():
        compared = _understood(problems, lambda item=item: _compared(item))  # type: ignore[misc]
        key = of(compared.name) if compared else item.path
        if compared is None and (compared := _present(item)):
            key = of(compared.name)
        named.setdefault(key, compared)
    return tuple(filter(None, named.values())), _MAX if listed is None else len(named)


def _compared(fields: Fields) -> ValueMatch:
    regex = fields.choice("type", _Compared.EXACT) is _Compared.REGEX
    return made(fields, lambda: ValueMatch(fields.text("name"), fields.text("value"), regex))


def _present(fields: Fields) -> ValueMatch | None:
    """Return the condition that there is any value, where the name is understood."""
    try:
        return ValueMatch(fields.text("name"), ".*", regex=True)
    except (FieldError, ValueError):
        return None


def _method(fields: Fields, problems: list[str]) -> str:
    """Return the method; an unknown one is compared as written."""
    existing = _understood(problems, lambda: fields.choice("method", _Method.ANY))
    if existing is not None:
        return existing.value
    written = fields.get("method")
    try:
        return Match(method=written).method if isinstance(written, str) else ""
    except ValueError:
        return ""
