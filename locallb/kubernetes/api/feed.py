"""One kind of a cluster's objects: a list, then its changes by a watch with bookmarks.

Most API servers send a bookmark about once a minute; one with storage that reports no progress sends none while nothing
changes. So a watch that is silent for longer is ended and opened again: a server that is gone fails to answer that.
Answers that aren't of a Kubernetes API are errors like missing ones, and each answer has a limit of time and size. Not
here: what to do when a feed ends, and what the objects mean.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import httpx2
from msgspec import Struct

from locallb.kubernetes.answers import ERROR, AnswerError, Object, WatchLine, lines, list_page, watch_line, whole
from locallb.kubernetes.api.connected import excerpt, nonsense, open_client, unreachable
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.limits import LARGEST, limit
from locallb.kubernetes.api.servers import ForbiddenError, KubeconfigError, RefusedError, UnreachableError
from locallb.model.fields import JsonObject
from locallb.model.snapshot import Access

ApiPath: TypeAlias = tuple[str, str]
"""apiVersion, and where all of a kind are listed."""
PATHS: Mapping[str, ApiPath] = {
    "Service": ("v1", "/api/v1/services"),
    "Node": ("v1", "/api/v1/nodes"),
    "EndpointSlice": ("discovery.k8s.io/v1", "/apis/discovery.k8s.io/v1/endpointslices"),
}
"""The kinds that are read of every cluster."""
OPENED = "OPENED"
SILENCE = 100.0
"""Seconds without a line after which a watch is opened again."""
TIMEOUT = 30.0
"""Seconds that one whole answer, or the head of a watch's, may take."""
PAGES_AT_ONCE, PAGE_EVERY = 3, 0.5
"""Pages of a list that are requested without a pause, and the seconds between later ones."""
_LIFE = 300
"""Seconds after which the server must end a watch; the next one continues from there."""
_PAGE = 1000
_MAX_PAGES = 1000
_REMOVED = 410
_EXCERPT = 4096
_CONNECTED = ("connect_tcp.complete", "start_tls.complete")
_UNANSWERED = frozenset({403, 404, 405, 501})


class ExpiredError(Exception):
    """The server no longer knows what happened since: list again."""


class Event(Struct, frozen=True):
    """An event of an object: ADDED, MODIFIED, DELETED; BOOKMARK and OPENED have only a version.

    OPENED is ours: the server accepted the watch.
    """

    type: str
    object: Object
    version: str


class Feed:
    """Objects of one kind of one cluster. For one thread; `cut` may be called from any."""

    def __init__(self, access: Access, kind: str, place: ApiPath | None = None) -> None:
        self.kind = kind
        self._api, self._path = place or PATHS[kind]
        self._sockets: list[socket.socket] = []
        self._is_cut = False
        self._due = float("inf")
        reached = connection(access)
        self._server = reached.server
        self._client = open_client(reached)
        limit(self._client, lambda: self._due)

    def close(self) -> None:
        """Close the connections; only for the thread that reads."""
        self._client.close()

    def cut(self) -> None:
        """Break off whatever is read now or later: it ends with a KubeError."""
        self._is_cut = True
        for open_socket in tuple(self._sockets):
            with suppress(OSError):
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def cut_if_overdue(self, now: float) -> None:
        """Break off an answer that takes longer than it may, however busily its bytes drip in."""
        if now > self._due:
            self.cut()

    def list(self, pause: Callable[[float], object] = time.sleep) -> tuple[list[Object], str]:
        """Return every object, and the version from which a watch goes on. Raises KubeError.

        Further pages of a long list are asked for at a pace that `pause` keeps.
        """
        objects: list[Object] = []
        parameters = {"limit": str(_PAGE)}
        for number in range(1, _MAX_PAGES + 1):
            with self._reporting():
                page = list_page(self._get(parameters), self._api, self.kind)
                objects.extend(page.objects)
                if not page.more:
                    return objects, page.version
                if page.more == parameters.get("continue"):
                    raise AnswerError("the list turns no page")
            parameters["continue"] = page.more
            if number >= PAGES_AT_ONCE:
                pause(PAGE_EVERY)
        raise UnreachableError(f"{self._server} lists {self.kind}s without an end")

    def document(self, path: str) -> Object | None:
        """Return the API's document at a path; None if it doesn't exist. Raises KubeError."""
        with self._reporting(), self._requested({}, path) as answer:
            return None if answer.status_code == httpx2.codes.NOT_FOUND else whole(self._text(answer))

    def posted(self, path: str, body: Mapping[str, object]) -> Object | None:
        """Return the API's answer to a posted request; None if it takes none. Raises KubeError."""
        with self._reporting(), self._requested({}, path, body) as answer:
            if answer.status_code in _UNANSWERED:
                return None
            return whole(self._text(answer, httpx2.codes.CREATED))

    def watch(self, version: str) -> Iterator[Event]:
        """Return what happens after `version`, until the server ends it. Raises KubeError, ExpiredError."""
        timeout = httpx2.Timeout(10.0, connect=3.0, read=TIMEOUT)
        parameters = {"watch": "true", **self._watching(version)}
        with self._reporting(), self._requested(parameters, timeout=timeout) as answer:
            if answer.status_code != httpx2.codes.OK:
                self._refuse(answer)
            self._due = time.monotonic() + _LIFE + TIMEOUT
            answer.request.extensions["timeout"]["read"] = SILENCE  # its head has come
            yield Event(OPENED, {}, version)
            last = time.monotonic()
            with suppress(httpx2.ReadTimeout):
                for line in lines(answer.iter_bytes()):
                    if line is not None:
                        yield self._event(watch_line(line, self._api, self.kind))
                        last = time.monotonic()
                    elif time.monotonic() - last > SILENCE:
                        raise AnswerError("a line of the watch doesn't end")

    def _watching(self, version: str) -> Mapping[str, str]:
        """Return the parameters of a watch that begins after `version`."""
        return {"allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(_LIFE)}

    def _event(self, line: WatchLine) -> Event:
        if line.type == ERROR:
            if line.object.get("code") == _REMOVED:
                raise ExpiredError
            raise UnreachableError(f"{self._server} ended a watch: {line.object.get('message', '')!s:.200}")
        return Event(line.type, line.object, line.version)

    def _get(self, parameters: Mapping[str, str]) -> bytes:
        with self._requested(parameters) as answer:
            return self._text(answer)

    def _text(self, answer: httpx2.Response, wanted: int = httpx2.codes.OK) -> bytes:
        if answer.status_code != wanted:
            self._refuse(answer)
        text = bytearray()
        for chunk in answer.iter_bytes():
            text += chunk
            if len(text) > LARGEST:
                raise AnswerError(f"a page of the list is larger than {LARGEST >> 20} MiB")
            if time.monotonic() > self._due:
                raise AnswerError(f"the list takes longer than {TIMEOUT:.0f} s")
        return bytes(text)

    @contextmanager
    def _requested(
        self,
        parameters: Mapping[str, str],
        path: str = "",
        body: Mapping[str, object] | None = None,
        **given: Any,  # noqa: ANN401 - as httpx2 has it
    ) -> Iterator[httpx2.Response]:
        """Send a request; the answer's head has come."""
        self._due = time.monotonic() + TIMEOUT
        try:
            with self._client.stream(
                "POST" if body else "GET",
                path or self._path,
                params=parameters,
                extensions={"trace": self._trace},
                json=body,
                **given,
            ) as answer:
                yield answer
        finally:
            self._due = float("inf")

    def _trace(self, what: str, info: JsonObject) -> None:
        """Take note of each connection, so that it can be cut in the midst of a read."""
        if what.endswith(_CONNECTED):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self._is_cut:
                self.cut()

    def _refuse(self, answer: httpx2.Response) -> None:
        """Raise the error of a failed answer."""
        if answer.status_code == _REMOVED:
            raise ExpiredError
        text = excerpt(next(answer.iter_bytes(_EXCERPT), b""))
        sentence = f"{self._server} doesn't give its {self.kind}s ({answer.status_code}: {text})"
        if answer.status_code == httpx2.codes.FORBIDDEN:
            raise ForbiddenError(sentence)
        raise RefusedError(sentence) if answer.status_code == httpx2.codes.UNAUTHORIZED else UnreachableError(sentence)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Return in a sentence what goes wrong with the connection."""
        try:
            yield
        except AnswerError as error:
            raise nonsense(self._server, error) from None
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, OSError) as error:
            raise unreachable(self._server, error) from None
        except httpx2.InvalidURL as error:
            raise KubeconfigError(f"{self._server} can't be asked: {error}") from None
