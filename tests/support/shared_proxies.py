"""Services that share proxies: what one of them may do to the others."""

from __future__ import annotations

import socket
import threading
from typing import Self

from tests.support.backends import Backend, ask, refused
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

SHARED, SPARE = "shared", {"mode": "per-service", "spares": 1}
CHANGES = {"create", "update", "delete", "replace", "create-replacement", "delete-replaced"}


class Client:
    """Asks again and again, over new connections and over one that stays, and remembers what failed."""

    def __init__(self, address: str, number: int) -> None:
        self.address, self.number = address, number
        self.failures: list[str] = []
        self.answers = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._stream = socket.create_connection((self.address, self.number), timeout=5)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._stream.close()

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            try:
                ask(self.address, self.number)
                self._stream.sendall(b"still there\n")
                self.answers += bool(self._stream.recv(100))
            except OSError as error:
                self.failures.append(str(error))


def touched(stage: Stage) -> set[str]:
    """Run `up` and name the resources that it changed."""
    done = stage.run("up", "--yes", "--json")
    assert done.code == 0, done.out + done.err
    return {f"{step['type'].rpartition(':')[2]} {step['name']}" for step in done.json["steps"] if step["op"] in CHANGES}


def a_service_comes_changes_and_goes(play: Stage, backend: Backend) -> None:
    """Beside two others: only its own load balancer is touched, no request of theirs fails, no stream is cut."""
    two = [service("a", port(8080, backend.port)), service("b", port(8080, backend.port))]
    with Client(play.addresses()["n/a"], 8080) as client:
        play.write("all.yaml", node(), *two, service("c", port(8080, backend.port)))
        added = touched(play)
        at = play.addresses()["n/c"]
        assert ask(at, 8080) == "one: hello"
        play.write("all.yaml", node(), *two, service("c", port(9090, backend.port)))
        changed = touched(play)
        assert ask(at, 9090) == "one: hello"
        assert refused(at, 8080)
        play.write("all.yaml", node(), *two)
        removed = touched(play)
        assert refused(at, 9090)
    its = {f"{kind} c/n/c" for kind in ("LoadBalancer", "ServiceConfig", "Reachable")}
    assert added == removed == {*its, f"LoopbackAddress c/n/c/{at}"}
    assert changed == its
    assert (client.failures, client.answers > 0) == ([], True)
