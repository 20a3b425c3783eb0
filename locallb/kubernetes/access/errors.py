"""What can go wrong with a Kubernetes API, for those who needn't load a client to know it."""

from __future__ import annotations

from enum import StrEnum

from locallb.model.errors import ClientError


class Fault(StrEnum):
    """What sort of thing went wrong."""

    KUBECONFIG = "kubeconfig"
    """It can't be read or used now, or may be half-written: it says nothing."""
    NO_CONTEXT = "no context"
    """It is whole and has no such context: whoever made the cluster took it away."""
    UNREACHABLE = "unreachable"
    """The API didn't answer, or not now; what it has is unknown."""
    REFUSED = "refused"
    """The API said no."""
    CONFLICT = "conflict"
    """Somebody wrote since it was read."""


class KubeError(ClientError):
    """An API can't be used as asked: one sentence."""

    def __init__(self, fault: Fault, sentence: str, *, forbidden: bool = False) -> None:
        super().__init__(sentence)
        self.fault = fault
        self.forbidden = forbidden
        """It lacks a right (403), which may be given while everything else goes on."""
