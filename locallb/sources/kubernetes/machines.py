"""The API of a cluster with pods that are Nodes of other clusters.

Not here: what these pods say (`machine_pods`), and when it is read.
"""

from __future__ import annotations

from typing import Any

from locallb.kubernetes.access.errors import ForbiddenError, KubeconfigError, NoContextError
from locallb.kubernetes.answers import Object, listed
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.connected import Connected
from locallb.kubernetes.api.limits.allowance import Allowance
from locallb.kubernetes.api.object_types import NAMESPACE, POD
from locallb.model.formatting import few
from locallb.model.snapshot import Access
from locallb.sources.kubernetes.machine_pods import LABELS

_PAGE = 100


class MachinesApi(Cluster):
    """An API that is asked for such pods."""

    rights = "deploy/rbac-machines.yaml"

    def machines(self, namespace: str = "*") -> list[Object]:
        """List the pods of machines, in one namespace or in all. Raises KubeError."""
        labels: dict[str, Any] = dict(LABELS)
        return self._list(
            "v1", "Pod", lambda client: client.list(POD, namespace=namespace, chunk_size=_PAGE, labels=labels)
        )

    def existing_machines(self, namespace: str) -> list[Object]:
        """List the machines of an existing namespace; a missing one is no proof that there are none. Raises KubeError.

        Without the right to read the namespace, the list counts.
        """
        if machines := self.machines(namespace):
            return machines
        subject = f"Namespace {namespace}"
        try:
            existing = self._call(
                subject, lambda client: listed(client.get(NAMESPACE, namespace), "v1", "Namespace"), absent=True
            )
        except ForbiddenError:
            return machines
        if existing is None:
            context = f"the context {self.access.context} of {self.access.kubeconfig}"
            raise NoContextError(f"{context} leads to a cluster without {subject}")
        return machines


class ForeignMachinesApi(MachinesApi):
    """The same by an untrusted kubeconfig: it may name no file, no command and no proxy.

    A pass over its server costs no more than an `Allowance`, and is one attempt. For one thread.
    """

    def __init__(self, access: Access) -> None:
        self._remaining = Allowance()
        super().__init__(access, self._remaining)

    def existing_machines(self, namespace: str) -> list[Object]:
        """List the pods of machines, within what such a look may cost. Raises KubeError."""
        self._remaining.renew()
        return super().existing_machines(namespace)

    def _connection(self) -> Connected:
        connected = super()._connection()
        if connected.beyond:
            sentence = f"{self.access.kubeconfig} has {few(connected.beyond)}; of it certificates and a token are taken"
            raise KubeconfigError(f"{sentence} that stand inside, and nothing else")
        return connected
