"""Validation of all texts in an HTTP configuration: headers, hostnames, paths, certificates, regular expressions.

Each check returns its value or raises ValueError with one sentence that names it. Every value of an HTTP
configuration is validated here, so that nothing from a cluster reaches a proxy unvalidated; all sizes are bounded.

Not here: the values themselves (`http_serving`, `http_routes`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from locallb.model.texts import shown
from locallb.patterns import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    import re2


MAX_TEXT = 1024
"""Characters of a path, an expression or a value that is compared."""
MAX_VALUE = 4096
"""Characters of a header's value that is set."""
MAX_HOSTNAME = 253
MAX_AUTHORITIES = 256 << 10
"""Characters of the certificates of authorities together: what usual systems trust together fits."""
_TOKEN = pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = pattern(r"[\t\x20-\x7e\x80-\U0010ffff]*")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOSTNAME = pattern(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_HOST = pattern(r"(?:\*\.)?[a-z0-9._-]{1,253}")
_PATH = pattern(r"/[\x21\x22\x24-\x3e\x40-\x7e]*")
_UNCHANGEABLE = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "upgrade", "content-length", "te"})
"""Headers of a message's host and length: set by the proxy alone."""


def header_name(text: str) -> str:
    """Return the name of a header or of a parameter: a token of RFC 9110."""
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't the name of a header: use letters, digits and hyphens")
    return text


def changed_header(text: str) -> str:
    """Return the name of a header that may be set or removed."""
    if header_name(text).lower() in _UNCHANGEABLE or text.lower().startswith("x-envoy-"):
        raise ValueError(f"the header {shown(text)} is the proxy's own: it can't be set or removed")
    return text


def header_value(text: str) -> str:
    """Return what a header is set to: no line ends in it, and neither does another header begin."""
    if len(text) > MAX_VALUE or not _VALUE.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't a header's value: at most {MAX_VALUE} characters, none that ends a line")
    return text


def compared(text: str) -> str:
    """Return a value that a header or parameter is compared with."""
    if len(text) > MAX_TEXT or not _VALUE.fullmatch(text):
        raise ValueError(f"{shown(text)} can't be compared: at most {MAX_TEXT} characters, none that ends a line")
    return text


def hostname(text: str, *, wildcard: bool = True) -> str:
    """Return a hostname in lower case, or `*.` and a name if wildcards are allowed; no address, no port."""
    fits = len(text) <= MAX_HOSTNAME and _HOSTNAME.fullmatch(text) and (wildcard or not text.startswith("*"))
    if not fits:
        raise ValueError(f"{shown(text)} isn't a hostname: use lower-case labels of letters, digits and hyphens")
    return text


def host(text: str) -> str:
    """Return what requests may name as their host, or `*.` and a name: hostnames, and names that DNS doesn't have."""
    if not _HOST.fullmatch(text):
        raise ValueError(f"{shown(text)} is no host of requests: use lower-case letters, digits, hyphens and dots")
    return text


def path(text: str) -> str:
    """Return a path: it begins with a slash and has neither query, fragment nor blanks."""
    if len(text) > MAX_TEXT or not _PATH.fullmatch(text):
        raise ValueError(f"{shown(text)} isn't a path: begin with a slash, use at most {MAX_TEXT} printable characters")
    return text


@lru_cache(maxsize=64)
def authorities(pem: str) -> str:
    """Return certificates in PEM, at least one, that can be read, and not too many."""
    if len(pem) > MAX_AUTHORITIES:
        raise ValueError(f"the authorities are larger than {MAX_AUTHORITIES >> 10} KiB")
    import ssl  # noqa: PLC0415 - few configurations have authorities, and it takes longer to load than all of `model`

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise ValueError("the authorities aren't certificates in PEM") from error
    return pem


def within(number: int, low: int, high: int, what: str) -> int:
    """Return a number that lies within its limits."""
    if not low <= number <= high:
        raise ValueError(f"{what} {number} isn't within {low} and {high}")
    return number


MAX_SIZE = 5000
"""Instructions of a compiled expression."""
_MAX_MEMORY = 1 << 19
"""Bytes that compiling may take: MAX_SIZE instructions fit. With Envoy's 8 MiB a refusal would cost more."""
_REMEMBERED = 20_000
"""Expressions: as many as the routes of an address may have, which are asked for with each plan."""
_TOO_LARGE = "becomes too large: repeat less"
_ESCAPED = pattern(r"\\(.)")
_ESCAPES = {
    **dict.fromkeys("123456789", "a reference back to a group"),
    **dict.fromkeys("pP", "a Unicode class"),
    "Q": r"a quotation by \Q",
}
"""Escapes that aren't served, and what each is."""
_SET = r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]"
_PIECE = pattern(rf"\\.|{_SET}|\{{(\d{{1,9}})(?:,(\d{{0,9}}))?\}}|(\(\?<?[=!])|\((?:\?[\w<-]*[:>])?|.")


def checked(pattern: str) -> str:
    r"""Return an expression that RE2, which Envoy uses, compiles within our limits. Raises ValueError with its fault.

    RE2 takes time in proportion to a text's length whatever the expression, and memory in proportion to the
    expression's compiled size, which repetition makes large: so that is bounded. Refused as well are Unicode classes,
    of which a hundred take seconds to compile if capitals don't matter; \Q, which would swallow what is added to an
    expression; and anything but printable ASCII.
    """
    _ = _measured(pattern)
    return pattern


def groups(pattern: str) -> int:
    """Return how many groups an expression has that take something. Raises as `checked` does."""
    return _measured(pattern)[1]


def size_of(pattern: str) -> int:
    """Return how many instructions an expression becomes. Raises as `checked` does."""
    return _measured(pattern)[0]


@lru_cache(maxsize=_REMEMBERED)
def _measured(pattern: str) -> tuple[int, int]:
    if not pattern or len(pattern) > MAX_TEXT or not pattern.isascii() or not pattern.isprintable():
        raise ValueError(f"a regular expression has 1 to {MAX_TEXT} printable ASCII characters")
    for letter in _ESCAPED.findall(pattern):
        if letter in _ESCAPES:
            raise _fault(pattern, f"has {_ESCAPES[letter]}, which isn't served")
    if _pieces(pattern) > MAX_SIZE:
        raise _fault(pattern, _TOO_LARGE)
    compiled = _compiled(pattern)
    if compiled.programsize > MAX_SIZE:
        raise _fault(pattern, _TOO_LARGE)
    return compiled.programsize, compiled.groups


def _pieces(pattern: str) -> int:
    """Count the pieces of an expression as often as they are repeated: cheap, where RE2 takes long to find that out."""
    sizes, last = [0], 0
    for piece in _PIECE.finditer(pattern):
        low, high, around = piece.groups()
        if around:
            raise _fault(pattern, "looks around, which RE2 can't")
        if low:
            sizes[-1] += last * (max(int(low), int(high or 0), 1) - 1)
        elif piece[0].startswith("("):
            sizes.append(0)
        elif piece[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
    return sum(sizes)


@lru_cache(maxsize=256)
def whole(pattern: str) -> Callable[[bytes], re2._Match[bytes] | None]:
    """Return what matches an expression, made of served ones, with all of a text, as Envoy does."""
    match: Callable[[bytes], re2._Match[bytes] | None] = _compiled(pattern, _MAX_MEMORY << 4).fullmatch
    return match


def _compiled(pattern: str, memory: int = _MAX_MEMORY) -> re2._Regexp:
    """Compile an expression as Envoy does: bytes are characters."""
    try:
        import re2  # noqa: PLC0415 - few stacks have expressions
    except ImportError as error:
        raise _fault(
            pattern, f"can't be checked: install google-re2, with a Python for which it exists ({error})"
        ) from None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False  # on stderr
    options.max_mem = memory
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        why = error.args[0].decode()
    raise _fault(pattern, _TOO_LARGE if why.startswith("pattern too large") else f"is refused by RE2: {why}")


def _fault(pattern: str, why: str) -> ValueError:
    return ValueError(f"the regular expression {shown(pattern)} {why}")
