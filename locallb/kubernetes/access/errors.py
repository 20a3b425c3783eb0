"""Errors of a Kubernetes API, for modules that needn't load a client.

Transient and permanent errors are two types; the retry delay is decided elsewhere (`model.pacing`).
"""

from __future__ import annotations

from locallb.kubernetes.access.servers import redacted_urls
from locallb.model.errors import ClientError


class KubeError(ClientError):
    """A failed use of an API: one sentence, without credentials. Each is of one of the two types below."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(redacted_urls(sentence))


class TransientKubeError(KubeError):
    """It may pass by itself: until then the API's contents are unknown, and nothing is given up for it."""


class KubeconfigError(TransientKubeError):
    """A kubeconfig can't be read or used now, or may be half-written: it says nothing."""


class UnconfirmedError(KubeconfigError):
    """A kubeconfig's current context refers to a cluster that isn't of this host, and no user confirmed it."""


class UnreachableError(TransientKubeError):
    """The API didn't answer, or not now."""


class ConflictError(TransientKubeError):
    """Another writer changed the object since it was read."""


class PermanentKubeError(KubeError):
    """It lasts until a user changes something: a retry has the same result."""


class NoContextError(PermanentKubeError):
    """A kubeconfig is whole and lacks the context: it was removed with the cluster."""


class RefusedError(PermanentKubeError):
    """The API said no."""


class ForbiddenError(RefusedError):
    """We lack a right (403), which may be given while everything else goes on."""
