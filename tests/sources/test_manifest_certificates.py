"""What is known of a Secret in manifests: its digest, or why TLS can't be served with it, and nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from locallb.sources.manifests.certificates import certificate_references
from tests.envoy.certificates import Authority

NOISE = b"not for anybody"
FRAMED = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("chain", "key", "problem"),
    [
        ("web", "web", ""),
        ("web", "other", "its tls.key isn't the key of its tls.crt; write the two that belong together"),
        ("web", "noise", "its tls.key isn't PEM; write the certificate and the key in PEM"),
        ("noise", "web", "its tls.crt isn't PEM; write the certificate and the key in PEM"),
        ("framed", "web", "its tls.crt or tls.key can't be used"),
    ],
)
def test_a_secret_that_cant_be_served_says_why_before_anything_is_planned(
    chain: str, key: str, problem: str, tmp_path: Path
) -> None:
    """So that the other listeners of its Gateway are served; nothing of what is in it is told."""
    authority = Authority(tmp_path)
    web, other = authority.sign("DNS:a.test"), authority.sign("DNS:b.test")
    chains = {"web": web.chain.read_bytes(), "noise": NOISE, "framed": FRAMED}
    keys = {"web": web.key.read_bytes(), "other": other.key.read_bytes(), "noise": NOISE}
    data = {"tls.crt": chains[chain], "tls.key": keys[key]}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "cert", "namespace": "shop"},
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }
    references = [dict(reference) for reference in certificate_references([secret], "/m/secret.yaml")]
    spec = references[0]["spec"]
    assert isinstance(spec, dict)
    assert str(spec.get("problem", "")).startswith(problem)
    assert ("digest" in spec) == (not problem)
    told = json.dumps(references)
    assert not [line for line in (*keys[key].splitlines()[1:-1], NOISE) if line.decode() in told]
