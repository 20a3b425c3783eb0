"""What can go wrong with a Kubernetes API, for those who needn't load a client to know it.

What may pass by itself and what stays until somebody changes something are two types; how often is asked again is
decided elsewhere (`model.pacing`).
"""

from __future__ import annotations

from locallb.kubernetes.access.servers import redacted_urls
from locallb.model.errors import ClientError


class KubeError(ClientError):
    """An API can't be used as asked: one sentence, without credentials. Each is of one of the two types below."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(redacted_urls(sentence))


class TransientKubeError(KubeError):
    """It may pass by itself: until then nothing is known of what the API has, and nothing is given up for it."""


class KubeconfigError(TransientKubeError):
    """A kubeconfig can't be read or used now, or may be half-written: it says nothing."""


class UnconfirmedError(KubeconfigError):
    """A kubeconfig's current context leads to a cluster that isn't of this host, and no user confirmed it."""


class UnreachableError(TransientKubeError):
    """The API didn't answer, or not now."""


class ConflictError(TransientKubeError):
    """Somebody wrote since it was read."""


class PermanentKubeError(KubeError):
    """It stays until somebody changes something: asking again says the same."""


class NoContextError(PermanentKubeError):
    """A kubeconfig is whole and has no such context: whoever made the cluster took it away."""


class RefusedError(PermanentKubeError):
    """The API said no."""


class ForbiddenError(RefusedError):
    """We lack a right (403), which may be given while everything else goes on."""
