"""Certificates of a manifest that a proxy serves."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from locallb.model.http_serving import Certificate
from locallb.model.texts import owner_fields
from tests.support.certificates import Pair
from tests.support.provider import Wanted

KIND = "ServedCertificate"


def secret(pair: Pair, file: Path) -> None:
    """Write a manifest with the Secret `default/web`."""
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in _entries(pair)}
    document = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
    file.write_text(json.dumps({**document, "metadata": {"name": "web", "namespace": "default"}}))


def _entries(pair: Pair) -> tuple[tuple[str, Path], ...]:
    return ("tls.crt", pair.chain), ("tls.key", pair.key)


def inputs(wanted: Wanted, pair: Pair, file: Path) -> dict[str, Any]:
    """Return what a program says of the certificate."""
    digest = reference(pair, file).digest
    return {
        "proxy": wanted.proxy,
        "name": str(wanted.owner.service),
        "owner": dict(owner_fields(wanted.owner)),
        "access": {"kubeconfig": "", "context": ""},
        "file": str(file),
        "namespace": "default",
        "secret": "web",
        "digest": digest,
        "shared": False,
    }


def reference(pair: Pair, file: Path) -> Certificate:
    """Return what a configuration says of it."""
    named = pair.reference("web")
    return Certificate(named.cluster, named.namespace, named.name, named.digest, str(file))
