"""Tells that something happened to a container with a label, and that Docker went away or came back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locallb.clients.containers import Containers, ContainersError

HARM = ("die", "pause", "unpause", "destroy", "update", "rename")
"""What ends or changes a container: for those that we start ourselves."""
LIFE = ("start", "die", "destroy")
"""What makes a container one more or one less: for those that others start."""
_AGAIN = 1.0
"""Seconds until Docker is asked again where it doesn't answer."""


class ContainerEvents:
    """Calls `changed` with the value of `label` of each container concerned, from a thread of its own, until `stop`.

    What happened since it was made isn't missed, however long Docker takes to answer first. `presence` is called with a
    sentence when Docker stops answering, and with an empty one once it answers again: nobody can tell then what
    happened meanwhile.
    """

    def __init__(
        self, label: str, actions: Sequence[str], changed: Callable[[str], None], presence: Callable[[str], None]
    ) -> None:
        self._label = label
        self._actions = actions
        self._changed = changed
        self._presence = presence
        self._since = time.time()
        self._stopped = threading.Event()
        threading.Thread(target=self._follow, name=f"containers {label}", daemon=True).start()

    def stop(self) -> None:
        """End; the thread goes with the next event or with the process."""
        self._stopped.set()

    def _follow(self) -> None:
        absent = False
        while not self._stopped.is_set():
            try:
                stream = Containers().events(self._label, self._actions, self._since)
                if absent:
                    absent = False
                    self._presence("")
                for event in stream:
                    if self._stopped.is_set():
                        return
                    self._changed(_labelled(event, self._label))
                reason = "Docker ended its events"
            except ContainersError as error:
                reason = str(error)
            self._since = time.time()
            if not absent and not self._stopped.is_set():
                absent = True
                self._presence(reason)
            self._stopped.wait(_AGAIN)


def _labelled(event: Mapping[str, Any], label: str) -> str:
    return str(((event.get("Actor") or {}).get("Attributes") or {}).get(label, ""))
