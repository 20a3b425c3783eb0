"""Connections to ports of pods by `portforward`: the request, and the socket that remains of its connection.

The request is `POST …/pods/<name>/portforward` with `Upgrade: SPDY/3.1`, which API servers of every version take for
the right to create `pods/portforward`. Not here: what is then spoken (`relay`).
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TypeAlias

import httpx2
from msgspec import DecodeError, Struct

from locallb.kubernetes.answers import AnswerError
from locallb.kubernetes.api.client import POD
from locallb.kubernetes.api.connected import (
    FailedAnswerError,
    nonsense,
    open_client,
    refuse_redirect,
    refused,
    unreachable,
)
from locallb.kubernetes.api.kubeconfig import connection
from locallb.kubernetes.api.limits import limit
from locallb.kubernetes.api.servers import KubeconfigError, KubeError
from locallb.model.relays import RIGHTS
from locallb.model.snapshot import Access

TIMEOUT = httpx2.Timeout(5.0, connect=3.0)
"""Seconds for an answer, and for a connection."""
WHOLE = 10.0
"""Seconds for a whole answer, however its bytes come."""
_UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "portforward.k8s.io"}
_SILENCE, _PROBE_EVERY, _PROBES = 30, 10, 3
"""Seconds of silence after which the kernel asks whether the API server lives, and how often. No TCP_USER_TIMEOUT: that
ends connections to pods that don't read for so long, too."""
_LARGEST = 1 << 16
"""Bytes that are read of a refusal."""
Socket: TypeAlias = socket.socket | ssl.SSLSocket


class Upgraded(Struct, frozen=True, eq=False):
    """The connection of an upgraded request."""

    socket: Socket
    """It doesn't block."""
    _held: tuple[object, ...]
    """What would close the socket if it were gone."""

    def close(self) -> None:
        self.socket.close()


def upgraded(access: Access, namespace: str, pod: str) -> Upgraded:
    """Ask the API for a connection to a pod, with the credentials of this moment. Raises KubeError."""
    reached = connection(access)
    client, due = open_client(reached, (refuse_redirect,)), time.monotonic() + WHOLE
    limit(client, lambda: due)
    try:
        path = f"{POD.path(namespace, pod)}/portforward"
        request = client.build_request("POST", path, headers=_UPGRADE, timeout=TIMEOUT)
        answer = client.send(request, stream=True)
        return Upgraded(_socket_of(answer), (answer, client))
    except FailedAnswerError as error:
        what = f"connections to Pod {namespace}/{pod}"
        failure = refused(reached.server, what, error.code, error.message, RIGHTS)
    except httpx2.HTTPError as error:
        failure = unreachable(reached.server, error)
    except (AnswerError, DecodeError) as error:
        failure = nonsense(reached.server, error)
    except KubeError as error:
        failure = error
    client.close()
    raise failure from None


def _socket_of(answer: httpx2.Response) -> Socket:
    """Return the connection of an answer. Raises FailedAnswerError, AnswerError, KubeError."""
    if answer.status_code != httpx2.codes.SWITCHING_PROTOCOLS:
        raise _failure(answer)
    if answer.headers.get("Upgrade", "").upper() != "SPDY/3.1":
        raise AnswerError("it answers with another protocol than SPDY/3.1")
    stream = answer.extensions["network_stream"]
    found: Socket = stream.get_extra_info("socket")
    if stream.get_extra_info("ssl_object") is not None and not isinstance(found, ssl.SSLSocket):
        raise KubeconfigError("an HTTPS proxy can't be used for connections to pods; name an HTTP proxy")
    found.setblocking(False)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    return found


def _failure(answer: httpx2.Response) -> FailedAnswerError:
    """Read a refusal, bounded."""
    content = b""
    for piece in answer.iter_raw():
        content += piece
        if len(content) > _LARGEST:
            raise AnswerError("its refusal has no end")
    whole = httpx2.Response(answer.status_code, headers=_plain(answer.headers), content=content)
    return FailedAnswerError(whole)


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    return {name: headers[name] for name in ("Content-Type", "Retry-After") if name in headers}
