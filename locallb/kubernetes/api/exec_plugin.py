"""Exec plugins of kubeconfigs: a command of the user's that prints a token, run so that it can't block anything.

It gets no standard input, a deadline at which its whole process group ends, and a bounded output. A token counts until
it expires; shortly before, the next one is fetched while the old one is still used. A failed plugin isn't run again
at once, however many requests need its token. Its output is never reported. Not here: requests.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec import Struct, field

from locallb.kubernetes.api.servers import KubeconfigError, KubeError
from locallb.model.fields import JsonObject
from locallb.model.pacing import Backoff, Pace
from locallb.model.snapshot import Access
from locallb.model.texts import clipped
from locallb.programs import Program, ProgramError
from locallb.threads import Task, do_once

DEADLINE = 10.0
"""Seconds that a plugin may take."""
MAX = 2**20
"""Bytes that it may print."""
EARLY = 60.0
"""Seconds before a token expires from which on the next one is fetched."""
REST = 10.0
"""Seconds between runs of a plugin that failed, or gave a new token that the API refused."""
PACE = Pace(first=REST, longest=REST, floor=REST, spread=0.0)


class Plugin(Struct, frozen=True):
    """A command that gives the credential of a context. Equal ones share their token."""

    access: Access
    version: str
    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    cluster: str = ""
    """What it gets to know of its cluster, as JSON; empty where it doesn't ask for it."""

    @classmethod
    def of(cls, section: JsonObject, access: Access) -> Plugin:
        """Read a kubeconfig's section `exec`; a command with a slash is relative to the file. Raises KubeError."""
        try:
            command = str(section["command"])
            if os.sep in command:
                command = os.path.join(os.path.dirname(access.kubeconfig), command)  # noqa: PTH118, PTH120 - a text
            variables = tuple((str(variable["name"]), str(variable["value"])) for variable in section.get("env") or ())
            arguments = tuple(str(argument) for argument in section.get("args") or ())
            return cls(access, str(section["apiVersion"]), command, arguments, variables)
        except (KeyError, TypeError, AttributeError):
            sentence = (
                f"the context {access.context} of {access.kubeconfig} can't be used: its user's `exec` isn't valid"
            )
            raise KubeconfigError(sentence) from None

    def __str__(self) -> str:
        """Return the beginning of a sentence about its failure."""
        where = f"the context {self.access.context} of {self.access.kubeconfig} can't be used"
        return f"{where}: its plugin {clipped(self.command)}"


class _FailedError(Exception):
    """A plugin gave nothing: half a sentence."""


class _Credential(Struct):
    """The token of one plugin; `running` keeps a second run from beginning meanwhile."""

    token: str = ""
    expires: float = float("inf")
    """By the wall clock."""
    failure: str = ""
    attempts: Backoff = field(default_factory=lambda: Backoff(PACE))
    """By the monotonic clock."""
    running: threading.Lock = field(default_factory=threading.Lock)

    def is_good(self, margin: float = 0.0) -> bool:
        return bool(self.token) and time.time() + margin < self.expires


_SUPPORTED: dict[Plugin, _Credential] = {}
_KNOWING = threading.Lock()


def token(plugin: Plugin) -> str:
    """Return the plugin's token; waits for it if none is valid. Raises KubeError."""
    credential = _credential(plugin)
    if not credential.is_good():
        with credential.running:
            if not credential.is_good():
                _renew(plugin, credential)
    elif not credential.is_good(EARLY) and credential.running.acquire(blocking=False):
        do_once(Task.PLUGIN, "exec plugin", partial(_renew_in_background, plugin, credential))
    return credential.token or token(plugin)  # refused meanwhile


def refuse(plugin: Plugin, refused: str) -> None:
    """Note that the API refused this token: the next request fetches another one, unless it is quite new."""
    credential = _credential(plugin)
    with credential.running:
        if credential.token == refused and credential.attempts.is_due(time.monotonic()):
            credential.token = ""


def _credential(plugin: Plugin) -> _Credential:
    with _KNOWING:
        return _SUPPORTED.setdefault(plugin, _Credential())


def _renew_in_background(plugin: Plugin, credential: _Credential) -> None:
    try:
        with suppress(KubeError):  # the token is still good; it is told when it isn't
            _renew(plugin, credential)
    finally:
        credential.running.release()


def _renew(plugin: Plugin, credential: _Credential) -> None:
    """Fetch a token; the caller holds `running`. Raises KubeError."""
    if credential.attempts.is_healthy or credential.attempts.is_due(time.monotonic()):
        _ask(plugin, credential)
    if credential.failure:
        sentence = f"{plugin} gives no token: {credential.failure}; run it by hand to see why"
        raise KubeconfigError(sentence)


def _ask(plugin: Plugin, credential: _Credential) -> None:
    try:
        credential.token, credential.expires = _parsed(_run(plugin))
    except _FailedError as error:
        credential.failure = str(error)
        credential.attempts = credential.attempts.failed(time.monotonic(), 0.0)
    else:
        credential.failure = ""
        credential.attempts = credential.attempts.succeeded(time.monotonic())


def _parsed(output: bytes) -> tuple[str, float]:
    """Read an ExecCredential: the token, and when it expires."""
    try:
        status = json.loads(output)["status"]
        token, until = str(status["token"] or ""), status.get("expirationTimestamp")
        expires = datetime.fromisoformat(str(until)).timestamp() if until else float("inf")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise _FailedError("what it prints is no ExecCredential with a token") from None
    if not token.isprintable() or not token:
        raise _FailedError("what it prints is no ExecCredential with a token")
    return token, expires


def _run(plugin: Plugin) -> bytes:
    """Run it to its end; on a timeout or too much output its process group is ended."""
    spec = {"interactive": False, **({"cluster": json.loads(plugin.cluster)} if plugin.cluster else {})}
    info = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info), **dict(plugin.variables)}
    terms = (plugin.command, *plugin.arguments)
    try:
        ended = Program(terms, DEADLINE, maximum=MAX, environment=environment, heard=False).run()
    except ProgramError as error:
        raise _FailedError(f"it {error.why}") from None
    if ended.code:
        raise _FailedError(f"it ended with {ended.code}")
    return ended.output
