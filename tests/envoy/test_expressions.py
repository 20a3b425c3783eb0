"""Regular expressions: what is taken is taken by RE2, and by Envoy wherever it stands; each refusal says why."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import re2
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from locallb.envoy import render
from locallb.model.http_checks import MAX_SIZE, checked, groups, size_of
from locallb.model.http_routes import (
    DirectResponse,
    Forward,
    GrpcMethod,
    HttpRoute,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Target,
    ValueMatch,
)
from locallb.model.http_serving import ANY, Chain, HttpListener, HttpRoutes, VirtualHost
from locallb.model.identities import ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy
from tests.support.envoy import validate

_MEMBERS = [
    "a-z",
    "0-9",
    "-",
    "_",
    r"\d",
    r"\w",
    r"\S",
    r"\-",
    r"\]",
    r"\x41",
    "[:alpha:]",
    "[:nope:]",
    "^",
    "[",
    "(?=",
    ".",
]
_SETS = ["[", "[^"]
_REPEATS = ["*", "+?", "{2}", "{2,}", "{0,9}", "{1000}", "{1001}", "{2,1}", "**"]
_GROUPS = ["(", "(?:", "(?P<n>", "(?<n>", "(?s-i:", "(?x:"]
_ATOMS = ["a", ".", r"\w", r"\.", "^", "$", "/", r"\b", r"\z", "{", "}", "]", "(?i)"]
_REFUSED = [r"\1", r"\pL", r"\Qa", "(?=a)"]
_ENDS = [")", "){2}", "){0,9}", "){1000}"]
_PIECES = [*_ATOMS * 2, *_REPEATS, "{1000}", *_GROUPS * 2, *_SETS * 5, *_REFUSED, *_ENDS * 2, *"|" * 5]
_LETTERS = {chr(0x100 + number): number for number in range(len(_PIECES))}


def _written(letters: str, mended: bool) -> str:  # noqa: FBT001 - drawn
    """Write a piece for each letter, and in a set a member or its end; `mended`, what opens and closes fits."""
    written, groups, within, repeatable = "", 0, False, False
    for number in map(_LETTERS.__getitem__, letters):
        piece = _PIECES[number]
        if within:
            member = number % (len(_MEMBERS) + 3)
            within, repeatable = member < len(_MEMBERS), True
            piece = _MEMBERS[member] if within else "]"
        elif mended and ((piece in _ENDS and not groups) or (piece in _REPEATS and not repeatable)):
            continue
        else:
            within, repeatable = piece in _SETS, piece in _ATOMS or piece == ")"
            groups += (piece in _GROUPS) - (piece in _ENDS)
        written += piece
    return f"{written}{']' if within else ''}{')' * groups}" if mended else written


_drawn = st.builds(_written, st.text("".join(_LETTERS), min_size=3, max_size=24), st.sampled_from([True, True, False]))
_expressions = st.one_of(
    st.builds(str.format, st.sampled_from([*["{}"] * 5, "({}){{300}}", "(?:{}){{1000}}"]), _drawn),
    st.text(r"ab/.[]^-()|*+?{}1,2\wdQ:=!<P>$", min_size=1, max_size=12),
)
"""Drawn as one text, which is a small part of the work of drawing each piece by itself."""
_EMPTY = "a regular expression has 1 to 1024 printable ASCII characters"
_OURS = "becomes too large|reference back|Unicode class|quotation by"
"""What is refused although RE2 may take it."""


def _re2s(pattern: str) -> re2._Regexp | None:
    """Compile it as Envoy does, with the memory that Envoy allows."""
    options = re2.Options()
    options.encoding, options.log_errors = re2.Options.Encoding.LATIN1, False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error:
        return None


def _refusal(pattern: str) -> str:
    try:
        checked(pattern)
    except ValueError as error:
        return str(error)
    return ""


@settings(max_examples=1000)
@given(_expressions)
@example(r"[a-z_-\d]")
@example("[--!]")
@example(r"[0-\d]")
@example("")
def test_what_is_taken_is_taken_by_re2_and_each_refusal_says_why(pattern: str) -> None:
    """Sizes and groups are RE2's; what RE2 would take is refused for few reasons."""
    compiled, refusal = _re2s(pattern), _refusal(pattern)
    if not refusal:
        assert compiled is not None
        assert (size_of(pattern), groups(pattern)) == (compiled.programsize, compiled.groups)
        assert size_of(pattern) <= MAX_SIZE
    else:
        with pytest.raises(
            ValueError, match=rf"^the regular expression .* ({_OURS}|looks around|is refused by RE2: .)|{_EMPTY}"
        ):
            checked(pattern)
        assert compiled is None or any(terms in refusal for terms in (*_OURS.split("|"), _EMPTY))


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "/a/.*",
            "(foo|bar)(/|$)(.*)",
            r"[\w.-]{2,5}?",
            "(?i)x",
            "[[:alpha:]]+",
            "/[^/]+/m",
            "(?P<a>x)",
            r"\x41",
            "a{",
        ),
        *("[]a]", "[a-]", "[(?=]", "a" * 1024, "(?<n>a)", "(a{30}){30}"),
    ],
)
def test_expressions_that_re2_has(pattern: str) -> None:
    """They come back as they are."""
    assert checked(pattern) == pattern


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"/[a-z_-\d]+", r"is refused by RE2: invalid escape sequence: \d"),
        ("a**", "is refused by RE2: bad repetition operator: **"),
        ("a)", "is refused by RE2: unexpected ): a)"),
        ("[z-a]", "is refused by RE2: invalid character class range: z-a"),
        ("[]", "is refused by RE2: missing ]: []"),
        ("a{2000}", "is refused by RE2: invalid repetition size: {2000}"),
        ("(a{40}){40}", "is refused by RE2: invalid repetition size: {40}"),
        ("/(?<!a)b", "looks around, which RE2 can't"),
        (r"(a)\1", "has a reference back to a group, which isn't served"),
        (r"[\pL]", "has a Unicode class, which isn't served"),
        (r"\Qa", r"has a quotation by \Q, which isn't served"),
        ("[^a]{999}" * 3, "becomes too large: repeat less"),
        ("((a?){30}){30}" * 6, "becomes too large: repeat less"),
        ("", "1 to 1024 printable ASCII characters"),
        ("a" * 1025, "1 to 1024 printable ASCII characters"),
        ("\u00e4", "1 to 1024 printable ASCII characters"),
        ("a\n", "1 to 1024 printable ASCII characters"),
    ],
)
def test_expressions_that_are_refused(pattern: str, why: str) -> None:
    """By RE2 in its own words; by us where it would be large, or mean something else."""
    assert _refusal(pattern).endswith(why)


@pytest.mark.envoy
@settings(
    max_examples=3,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(_expressions, min_size=80, max_size=120))
@example(["(?i)a|b", "(?<n>[^a]{900})", ".{990}", "^$", r"[]\-[]+", "((a?){30}){30}"])
def test_envoy_takes_what_is_taken_wherever_it_stands(patterns: list[str]) -> None:
    """In paths, headers, parameters, gRPC's names and rewrites by groups, and framed as for Ingresses."""
    routes = [route for pattern in patterns if not _refusal(pattern) for route in _routes(pattern)]
    listener = HttpListener(ip_address("127.77.0.9"), 80, (Chain(HttpRoutes((VirtualHost((ANY,), tuple(routes)),))),))
    name, number = ProxyName("kind/gateways/default/web"), ProxyId("0123456789ab")
    proxy = Proxy(name, number, Discovery.STATIC, http=(listener,), may_serve_http=True)
    with TemporaryDirectory() as directory:
        result = validate(Path(directory), render(proxy).files)
    assert result.returncode == 0, result.stderr


def _routes(pattern: str) -> list[HttpRoute]:
    """Return routes that have it in each place."""
    compared = ValueMatch("x-a", pattern, regex=True)
    framed = [PathMatch(PathKind.REGEX, pattern), PathMatch(PathKind.REGEX, f"(?i:{pattern}).*")]
    somewhere = ValueMatch("x-b", f".*(?:{pattern}).*", regex=True)
    rewritten = Forward((Target(UpstreamName("tcp-80")),), path=PathRewrite(r"/\0", groups=True))
    matches = [
        *map(Match, framed),
        *(Match(GrpcMethod(*names, regex=True)) for names in ((pattern, pattern), (pattern, ""), ("", pattern))),
        Match(headers=(compared, somewhere), query=(compared,)),
    ]
    return [
        *(HttpRoute(match, DirectResponse(204)) for match in matches),
        *(HttpRoute(Match(path), rewritten) for path in framed),
    ]
