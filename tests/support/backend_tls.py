"""BackendTLSPolicies and the ConfigMaps that they name, as sources hand them over."""

from __future__ import annotations

import datetime as dt

from locallb.certificates.store import make_authority
from locallb.gateway.parsing import BUNDLE_REFERENCE
from locallb.sources.manifest_files import certificate_references
from tests.support.gateway_objects import JsonObject, api_object

PAIR = make_authority("test", ["test"], dt.datetime(2026, 11, 1, tzinfo=dt.UTC))
PEM, KEY = PAIR.certificate.decode(), PAIR.key.decode()
OTHER_PEM = make_authority("other", ["test"], dt.datetime(2026, 11, 1, tzinfo=dt.UTC)).certificate.decode()
REF: JsonObject = {"group": "", "kind": "ConfigMap", "name": "ca"}


def policy(
    name: str = "tls", *, target: JsonObject | None = None, created: str = "", **validation: object
) -> JsonObject:
    """Make a policy of the Service `api` that trusts the ConfigMap `ca`, unless something else is given."""
    about = {"group": "", "kind": "Service", "name": "api", **(target or {})}
    whole = {"hostname": "a.test", "caCertificateRefs": [REF], **validation}
    spec = {"targetRefs": [about], "validation": {key: value for key, value in whole.items() if value is not None}}
    return api_object("BackendTLSPolicy", name, spec=spec, metadata={"creationTimestamp": created})


def bundle(name: str = "ca", text: str = PEM, namespace: str = "shop") -> JsonObject:
    """Return what stands for a ConfigMap that manifests have."""
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": text}}
    (reference,) = certificate_references([document], "/m/ca.yaml")
    assert BUNDLE_REFERENCE.items() <= reference.items()
    return {str(field): value for field, value in reference.items()}
