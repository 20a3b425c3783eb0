"""Requests that nobody answered while pods ended, and which of them a pod had accepted.

A process that ends refuses connections only once its sockets are closed; until then the kernel accepts for it, and all
of that is cut in the end. A proxy that doesn't know the protocol can't ask again for such a client, as what he said may
have been heard. Whoever wasn't let in by any pod is another matter: he is to be held until there is one.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from ipaddress import ip_address

from locallb.traffic.figures import Line
from tests.kubelets.workloads import answer_on
from tests.support.log_reading import Reader, reading, was_accepted
from tests.support.stages import Stage
from tests.support.waiting import becomes

TIMEOUT = 60
"""Seconds for which a client waits: who gives up earlier says nothing of pods, but of the machine."""


class Clients:
    """Those of one Service: who got no answer is remembered by where he came from."""

    def __init__(self, address: str, reader: Reader) -> None:
        self.unanswered: list[str] = []
        self._address, self._reader = address, reader

    def ask(self) -> str:
        """Ask once. Returns the name of the pod that answered, or that of the error."""
        with closing(http.client.HTTPConnection(self._address, timeout=TIMEOUT)) as connection:
            try:
                connection.connect()
            except OSError as error:
                self.unanswered.append(type(error).__name__)  # no log tells of such a client: `lost` fails
                return self.unanswered[-1]
            client, text = ":".join(map(str, connection.sock.getsockname())), answer_on(connection)
        if not text.startswith("web-"):
            self.unanswered.append(client)
        return text

    def lost(self, present: AbstractSet[str]) -> list[Line]:
        """Return the lines of those whom no former pod had accepted; `present` are addresses of pods that are there."""
        becomes(lambda: set(self.unanswered) <= {line.client for line in self._unanswered()}, "all are told of")
        return [line for line in self._unanswered() if not was_accepted(line) or _host(line.backend) in present]

    def _unanswered(self) -> list[Line]:
        return [line for line in self._reader.lines if line.client in self.unanswered and not line.sent]


def _host(place: str) -> str:
    return str(ip_address(place.rpartition(":")[0].strip("[]")))


@contextmanager
def clients(play: Stage, address: str) -> Iterator[Clients]:
    """Read the log of the only proxy of a stack with `accessLogs`, while clients ask."""
    (directory,) = (play.state_home / "proxies").iterdir()
    with reading(directory) as reader:
        made = Clients(address, reader)
        becomes(lambda: bool(made.ask() and reader.lines), "the log is told")
        yield made
