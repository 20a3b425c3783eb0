"""Failed answers of an API as errors: one sentence with the server, the request, and the remedy.

The API's own text is quoted at a bounded length. Not here: which are retried (`client`).
"""

from __future__ import annotations

import httpx2
from msgspec import DecodeError, Struct, json

from locallb.kubernetes.access.servers import (
    ConflictError,
    ForbiddenError,
    KubeError,
    RefusedError,
    UnreachableError,
    redacted,
)
from locallb.kubernetes.answers import AnswerError
from locallb.model.errors import scarcity
from locallb.model.texts import clipped, printable

TRANSIENT = frozenset({408, 410, 429, 500, 502, 503, 504})
"""Answers that another attempt may change; 410 is a list that took too long to turn its pages."""
RIGHTS = (
    "deploy/rbac.yaml, for Gateways deploy/rbac-gateways.yaml, for Ingresses deploy/rbac-ingresses.yaml,"
    " for ranges of pods deploy/rbac-pod-ranges.yaml"
)
_REDIRECTS = 3
"""The first digit of status codes of redirects."""
_LONGEST_WISH = 5.0
_LONGEST = 1000
"""Characters of what an API writes."""
_EXCERPT = 200
"""Of what something else writes, such as a proxy between."""


class _Status(Struct):
    """What an API says of its refusal (`Status` of `v1`)."""

    code: int | None = None
    message: str | None = None


_STATUS = json.Decoder(_Status)


class FailedAnswerError(Exception):
    """A request failed: the status code, and why in the words of the API or of something between.

    Its making raises DecodeError for an answer that isn't what it is said to be.
    """

    def __init__(self, answer: httpx2.Response) -> None:
        if answer.headers.get("Content-Type") == "application/json":
            status = _STATUS.decode(answer.content)
            self.code = status.code or answer.status_code
            self.message = printable((status.message or "")[:_LONGEST])
        else:
            self.code, self.message = answer.status_code, excerpt(answer.content[:_LONGEST])
        wish = answer.headers.get("Retry-After", "")
        self.wish = min(float(wish), _LONGEST_WISH) if wish.isdecimal() else 0.0
        """The API's requested delay in seconds; 0 if absent, and bounded."""
        super().__init__(self.message)


def excerpt(content: bytes) -> str:
    """Quote a foreign answer in one line, as UTF-8 whatever it claims: some encodings take quadratic time."""
    return printable(" ".join(content.decode(errors="replace").split())[:_EXCERPT])


def refuse_redirect(answer: httpx2.Response) -> None:
    """Raise AnswerError for a redirect: credentials are for one server alone."""
    if answer.has_redirect_location or answer.status_code // 100 == _REDIRECTS:
        elsewhere = clipped(redacted(answer.headers.get("location", ""))) or "nowhere"
        raise AnswerError(f"it leads to {elsewhere} ({answer.status_code}); is that the API's `server`?")


def unreachable(server: str, error: Exception) -> KubeError:
    """Explain that there was no answer."""
    why = scarcity(error)
    problem = f"can't be asked: {why}" if why else f"doesn't answer ({str(error) or type(error).__name__:.200})"
    return UnreachableError(f"{server} {problem}")


def nonsense(server: str, error: Exception) -> KubeError:
    """Explain that something other than an API server answered."""
    return UnreachableError(f"{server} answers with something that isn't a Kubernetes API's ({_fault(error):.200})")


def _fault(error: Exception) -> str:
    """Describe the fault of an answer, for users without knowledge of this program."""
    match error:
        case KeyError():
            return f"it has no {error.args[0]}" if error.args else "a part of it is missing"
        case RecursionError():
            return "it is nested too deep"
        case AnswerError() | DecodeError():
            return str(error)
    return "a part of it is of another type"


def refused(server: str, what: str, code: int, message: str, remedy: str) -> KubeError:
    """Explain a refusal; `remedy` is for one that is about rights."""
    if code == httpx2.codes.CONFLICT:
        return ConflictError(f"{what} was changed by somebody else: {message}")
    if code >= httpx2.codes.INTERNAL_SERVER_ERROR or code in TRANSIENT:
        return UnreachableError(f"{server} can't serve {what} now ({code}: {message})")
    denied = code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}
    sentence = f"{server} refuses {what} ({code}: {message}){f'; {remedy}' if denied else ''}"
    return ForbiddenError(sentence) if code == httpx2.codes.FORBIDDEN else RefusedError(sentence)
