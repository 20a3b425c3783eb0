"""Reports that something happened to a container with a label, and that its engine went away or came back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from locallb.model.fields import at
from locallb.runtimes.docker.daemon import ANSWER, ContainersError, EventStream
from locallb.runtimes.docker.engine_api import DISCONNECT, Containers, attributes_of
from locallb.threads import SupervisedThread, Task

HARM = ("die", "pause", "unpause", "destroy", "update", "rename", DISCONNECT)
"""Events that end or change a container: for containers that we start ourselves."""
LIFE = ("start", "die", "destroy")
"""Events that add or remove a container: for containers that other programs start."""
_RETRY_DELAY = 1.0
"""Seconds until Docker is asked again where it doesn't answer."""
_SILENCE = 20.0
"""Seconds after which it is asked whether it is still there: one that hangs keeps its connections, and says nothing."""


class ContainerEvents:
    """Calls `changed` with the value of `label` of each affected container, from its own thread, until `stop`.

    Events since its creation are not missed, however long Docker takes to answer first. `presence` receives a sentence
    when Docker stops answering, and an empty one once it answers again: events in between are unknown.
    """

    def __init__(
        self,
        label: str,
        actions: Sequence[str],
        changed: Callable[[str], None],
        presence: Callable[[str], None],
        client: Callable[[float], Containers] = Containers,
    ) -> None:
        self._client = client
        self._label = label
        self._actions = actions
        self._changed = changed
        self._presence = presence
        self._since = time.time()
        self._absent = False
        self._stream: EventStream | None = None
        self._thread = SupervisedThread(Task.CONTAINERS, f"containers {label}", self._follow, failed=self._lose)
        self._hangs = ""
        """Why nothing is heard any more although the connection stands."""
        self._asker = SupervisedThread(Task.CONTAINERS, f"daemon of {label}", self._ask, stopped=self._thread.stopped)
        self._thread.start()
        self._asker.start()

    def stop(self) -> None:
        """End, also in the midst of a silence."""
        self._thread.stop()
        if self._stream:
            self._stream.cut()

    def _follow(self) -> None:
        while not self._thread.stopped.is_set():
            try:
                with closing(self._client(ANSWER)) as docker:
                    self._take(docker)
                reason = self._hangs or f"{docker.engine.name} ended its events"
            except ContainersError as error:
                reason = str(error)
            self._lose(reason)
            self._thread.stopped.wait(_RETRY_DELAY)

    def _ask(self) -> None:
        """Cut the events of a daemon that answers nothing."""
        with closing(self._client(ANSWER)) as docker:
            while not self._thread.stopped.wait(_SILENCE):
                try:
                    docker.ping()
                    self._hangs = ""
                except ContainersError as error:
                    self._hangs = str(error)
                    if self._stream:
                        self._stream.cut()

    def _take(self, docker: Containers) -> None:
        """Pass on what happens until Docker goes."""
        self._stream = docker.events(self._label, self._actions, self._since)
        if self._absent:
            self._presence("")
            self._absent = False
        if self._thread.stopped.is_set():  # too late for `stop` to cut it
            self._stream.cut()
        for event in self._stream:
            if self._thread.stopped.is_set():
                return
            if event.get("Type") == "network":
                subject = at(event, "Actor", "ID")  # for Podman that is the container, for Docker the network
                self._lost_network(docker, str(attributes_of(event).get("container") or subject or ""))
            else:
                self._changed(str(at(event, "Actor", "Attributes", self._label) or ""))

    def _lost_network(self, docker: Containers, identity: str) -> None:
        """Pass on that a running container was taken from a network; one that ends is taken from each."""
        observed = docker.inspect(identity) if identity else None
        if (
            observed
            and observed["State"]["Running"]
            and (value := (observed["Config"].get("Labels") or {}).get(self._label))
        ):
            self._changed(str(value))

    def _lose(self, reason: str) -> None:
        """Note that events aren't reported any more."""
        self._since = time.time()
        if not self._absent and not self._thread.stopped.is_set():
            self._presence(reason)
            self._absent = True
