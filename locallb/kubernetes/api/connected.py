"""The HTTP client for one Kubernetes API, the configuration it was made from, and its failed answers as errors.

Every request passes here: the quota is kept, answers are limited in size and time, and an API that another user named
keeps to its allowance. A failed answer is one sentence with the server, the request, and the remedy; the API's own text
is quoted at a bounded length. Watches are of the same client, without these limits (`feed`). Not here: which requests,
and which are retried (`client`).
"""

from __future__ import annotations

import base64
import os
import ssl
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx2
from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from locallb.kubernetes.answers import AnswerError, Object
from locallb.kubernetes.api.exec_plugin import refuse, token
from locallb.kubernetes.api.kubeconfig import Connection, Stamp, connection, read_token, stamp
from locallb.kubernetes.api.limits import PLAIN, Allowance, limit, limit_to, read_whole, refuse_compressed
from locallb.kubernetes.api.servers import (
    ConflictError,
    ForbiddenError,
    KubeconfigError,
    KubeError,
    RefusedError,
    UnreachableError,
    redacted,
)
from locallb.kubernetes.api.writes import QUOTAS
from locallb.model.errors import scarcity
from locallb.model.snapshot import Access
from locallb.model.texts import clipped, printable
from locallb.storage.files import stamp_of
from locallb.storage.key_pairs import in_memory

_MAX = 16
"""Contexts that are kept."""
_FRESH = 600.0
"""Seconds after which the same inputs are read again: the system's authorities may be others."""
_ENVIRONMENT = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_Key: TypeAlias = tuple[object, ...]


class TlsContexts:
    """The contexts of this process, by their inputs. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._made: dict[_Key, tuple[float, ssl.SSLContext]] = {}

    def of(self, reached: Connection) -> ssl.SSLContext:
        """Return the TLS context of a connection. Raises OSError, SSLError, ValueError."""
        # files are stamped before they are read: what changes now is seen next time; using an absent one tells why
        stamps = tuple((file, stamp_of(Path(file))) for file in reached.files)
        user = replace(reached.user, token=None, token_file=None, username=None, password=None)
        key = (reached.trust, user, *map(os.environ.get, _ENVIRONMENT), *stamps)
        with self._lock:
            made, now = self._made.pop(key, None), self._clock()
            if made is None or now >= made[0] + _FRESH:
                made = now, load(reached)
            self._made[key] = made
            while len(self._made) > _MAX:
                del self._made[next(iter(self._made))]
            return made[1]


def load(reached: Connection) -> ssl.SSLContext:
    """Read what a connection trusts and shows; data go before files. Raises OSError, SSLError, ValueError."""
    trust, user = reached.trust, reached.user
    with ExitStack() as stack:

        def file(data: str | None, path: str | None) -> str | None:
            return stack.enter_context(in_memory(base64.b64decode(data))) if data else path or None

        if authority := file(trust.certificate_authority_data, trust.certificate_authority):
            context = ssl.create_default_context(cafile=authority)
        else:
            context = httpx2.create_ssl_context(verify=not trust.insecure_skip_tls_verify)
        if certificate := file(user.client_certificate_data, user.client_certificate):
            if not (key := file(user.client_key_data, user.client_key)):
                raise ValueError(
                    "its user has a client-certificate without a client-key; write the key that belongs to it"
                )
            context.load_cert_chain(certificate, key, password=_no_password)
        return context


def _no_password() -> str:
    """Refuse a key that Python would ask the terminal for, in the midst of a watch."""
    raise ValueError("its client-key has a password; write it without one")


TLS = TlsContexts()
"""Of this process."""


class BearerAuth(httpx2.Auth):
    """Sends the token that `read` returns. Raises KubeError out of the request where there is none."""

    def __init__(self, read: Callable[[], str], refuse: Callable[[str], object] = lambda _used: None) -> None:
        self._read = read
        self._refuse = refuse

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request with the token."""
        used = self._read()
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            self._refuse(used)
            if (other := self._read()) != used:
                request.headers["Authorization"] = f"Bearer {other}"
                yield request


def auth_of(reached: Connection) -> httpx2.Auth | None:
    """Return the credentials of a connection; None if it has none, or only a client certificate."""
    user, plugin = reached.user, reached.plugin
    if plugin:
        return BearerAuth(partial(token, plugin), partial(refuse, plugin))
    if user.token_file:
        return BearerAuth(partial(read_token, Path(user.token_file), reached.access))
    if inline := user.token:
        return BearerAuth(lambda: inline)
    return httpx2.BasicAuth(user.username, user.password) if user.username and user.password else None


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
    """What an API says of its refusal (`Status` of `v1`); Rancher's gateway has a word in the place of the number."""

    code: int | str | None = None
    message: str | None = None


_STATUS = json.Decoder(_Status)


class FailedAnswerError(Exception):
    """A request failed: the status code, and why in the words of the API or of something between.

    Its making raises DecodeError for an answer that isn't what it is said to be.
    """

    def __init__(self, answer: httpx2.Response) -> None:
        if answer.headers.get("Content-Type") == "application/json":
            status = _STATUS.decode(answer.content)
            self.code = status.code if isinstance(status.code, int) and status.code else answer.status_code
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


TIMEOUT = httpx2.Timeout(10.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
"""Kinds of patches."""
_MANAGER = "local-lb"


class ServedKind(Struct, frozen=True):
    """A kind that an API serves, in one version."""

    api: str
    """Its `apiVersion`."""
    name: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return where all are listed, or those of a namespace, or where one is."""
        parts = (*(("namespaces", namespace) if namespace else ()), self.plural, *((name,) if name else ()))
        root = "apis" if "/" in self.api else "api"
        return "/".join(("", root, self.api, *(quote(part, safe="") for part in parts)))

    def typed(self, document: Mapping[str, object]) -> Mapping[str, object]:
        return {"apiVersion": self.api, "kind": self.name, **document}


def open_client(
    reached: Connection,
    checks: Iterable[Callable[[httpx2.Response], None]] = (),
    headers: Mapping[str, str] | None = None,
) -> httpx2.Client:
    """Open a client of the API; `checks` see each answer before its reader. Raises KubeconfigError."""
    hooks: dict[str, list[Callable[..., Any]]] = {
        "request": [reached.name_server, partial(QUOTAS.hold, reached.access)],
        "response": list(checks),
    }
    try:
        return httpx2.Client(
            base_url=reached.url,
            verify=TLS.of(reached),
            auth=auth_of(reached),
            timeout=TIMEOUT,
            trust_env=reached.trust_env,
            proxy=reached.proxy,
            event_hooks=hooks,
            headers=headers,
        )
    except (OSError, ssl.SSLError, ValueError, TypeError, ImportError, httpx2.InvalidURL) as error:
        why = "a SOCKS proxy needs the package socksio; install it, or name an HTTP proxy"
        why = why if isinstance(error, ImportError) else str(error)
        sentence = f"the context {reached.access.context} of {reached.access.kubeconfig} can't be used: {why}"
        raise KubeconfigError(sentence) from None


class Connected:
    """A connection; closed once it is unused. Safe to use from several threads."""

    def __init__(self, access: Access, allowance: Allowance | None = None) -> None:
        named = connection(access).files
        self.stamp: Stamp | None = None
        with suppress(KubeError):  # using them tells what is wrong
            self.stamp = stamp(access, named)  # before they are read: what changes now is seen next time
        reached = connection(access)
        self.files = reached.files
        self.server = reached.server
        self.beyond = reached.beyond
        checks = (refuse_redirect, *((refuse_compressed,) if allowance else ()), read_whole)
        self._client = open_client(reached, checks, PLAIN if allowance else None)
        limit_to(allowance, self._client) if allowance else limit(self._client)
        weakref.finalize(self, self._client.close)

    def request(self, method: str, path: str, **given: Any) -> bytes:  # noqa: ANN401 - as httpx2 has it
        """Return the whole answer to a request. Raises FailedAnswerError, AnswerError, HTTPError."""
        answer = self._client.request(method, path, **given)
        if not answer.is_success:
            raise FailedAnswerError(answer)
        return answer.content

    def get(self, path: str) -> Object:
        """Return the object at a path. Raises what `request` does, and DecodeError or TypeError."""
        return _object(self.request("GET", path))

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object],
        content: str = "application/json",
        *,
        parameters: Mapping[str, str] | None = None,
        **given: Any,  # noqa: ANN401 - as httpx2 has it
    ) -> Object:
        """Return the object that a write made. Raises what `get` does."""
        named, headers = {"fieldManager": _MANAGER, **(parameters or {})}, {"Content-Type": content}
        return _object(self.request(method, path, params=named, content=json.encode(body), headers=headers, **given))

    def delete(self, path: str, preconditions: Mapping[str, str]) -> bytes:
        """Delete the object at a path if it fulfils the preconditions. Raises what `request` does."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        return self.request("DELETE", path, json=options)


def _object(text: bytes) -> Object:
    document = json.decode(text)
    if not isinstance(document, dict):
        raise TypeError
    return document
