"""CustomResourceDefinitions: read, and written by server-side apply (`gateway install-crds`).

What another manager owns is left to it: a conflict is reported, never forced. Not here: which ones are written.
"""

from __future__ import annotations

import httpx2
from lightkube import Client
from lightkube.generic_resource import create_global_resource

from locallb.kubernetes.access.errors import ConflictError, ForbiddenError, KubeError, RefusedError
from locallb.kubernetes.answers import Object, listed
from locallb.kubernetes.api.client import Cluster
from locallb.kubernetes.api.connected import Connected
from locallb.model.fields import JsonObject

MANAGER = "local-lb-install-crds"
_PLURALS = {
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
}
_LONGEST = 600
"""Limit of characters quoted from an API's answer."""


class Definitions(Cluster):
    """One cluster's definitions."""

    def definition(self, kind: str, name: str) -> Object | None:
        """Return one; None if there is none. Raises KubeError."""
        group, plural = _PLURALS[kind]
        resource = create_global_resource(group, "v1", kind, plural)

        def read(client: Client) -> Object:
            return listed(client.get(resource, name), f"{group}/v1", kind)

        return self._call(f"{kind} {name}", read, absent=True)

    def apply(self, document: JsonObject, *, rehearsed: bool) -> None:
        """Apply one; `rehearsed`, the server decides and checks as if, and keeps nothing. Raises KubeError."""
        kind = document["kind"]
        resource = create_global_resource(_PLURALS[kind][0], "v1", kind, _PLURALS[kind][1])
        wanted = resource.from_dict(dict(document))

        def send(client: Client) -> object:
            return client.apply(wanted, field_manager=MANAGER, dry_run=rehearsed)

        self._call(f"{kind} {document['metadata']['name']}", send)

    def _refused(self, connected: Connected, what: str, code: int, message: str) -> KubeError:
        """Return what a refusal means here, where no rights of ours help."""
        stated = " ".join(message.split())[:_LONGEST]
        if code == httpx2.codes.CONFLICT:
            sentence = f"{what} is managed by somebody else ({stated}); bring it up to date by what installed it"
            return ConflictError(sentence)
        if code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            remedy = "name the --context of somebody who may write CustomResourceDefinitions and admission policies"
            sentence = f"{connected.server} refuses {what} ({code}: {stated}); {remedy}"
            return ForbiddenError(sentence)
        if code == httpx2.codes.NOT_FOUND:
            sentence = f"{connected.server} doesn't know {what} ({code}: {stated}); Kubernetes does from 1.30 on"
            return RefusedError(sentence)
        return super()._refused(connected, what, code, stated)
