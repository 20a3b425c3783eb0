"""What is known of a Secret in manifests: its digest, or why TLS can't be served with it, and nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from locallb.gateway.parsing import parse_referred
from locallb.model.gateway_of_cluster import TlsSecret
from locallb.sources.configuration import TYPE
from locallb.sources.manifest_files import certificate_references
from tests.support.certificates import ED25519, P256, Authority

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
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
def test_a_secret_that_cannot_be_served_says_why_before_anything_is_planned(
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
    reported = json.dumps(references)
    assert not [line for line in (*keys[key].splitlines()[1:-1], NOISE) if line.decode() in reported]


@pytest.mark.parametrize("kind", [P256, ED25519])
def test_a_key_that_is_for_tcp_alone_is_known(kind: tuple[str, ...], tmp_path: Path) -> None:
    """By whoever plans what is served with it."""
    pair = Authority(tmp_path).sign("DNS:a.test", kind=kind)
    data = {"tls.crt": pair.chain.read_text(), "tls.key": pair.key.read_text()}
    metadata = {"name": "cert", "namespace": "shop"}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": metadata, "stringData": data}
    (reference,) = certificate_references([secret], "/m/secret.yaml")
    read = parse_referred(reference)
    assert isinstance(read, TlsSecret)
    assert (bool(read.digest), read.tcp_only) == (True, kind is ED25519)


def config_map(text: str, **fields: object) -> dict[str, object]:
    metadata = {"name": "ca", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": text}, **fields}


def stated(text: str) -> dict[str, str]:
    """Return what is said of a ConfigMap in manifests."""
    (reference,) = certificate_references([config_map(text)], "/m/ca.yaml")
    spec = reference["spec"]
    assert isinstance(spec, dict)
    return spec


def test_only_certificates_of_a_config_map_are_read(authority: Authority) -> None:
    """Each once, whatever stands between them and however lines end; other ConfigMaps are left out."""
    pem = authority.own.pem
    assert stated(pem) == {"authorities": pem}
    assert stated(f"# mine\r\n{pem}".replace("\n", "\r\n") + f"\nagain:{pem}") == {"authorities": pem}
    others = [config_map(pem, apiVersion="v2"), config_map(pem, data={"other": pem}), config_map(pem, data=7)]
    assert list(certificate_references(others, "/m/ca.yaml")) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "its ca.crt has no certificate"),
        ("rubbish", "its ca.crt has no certificate"),
        (f"{BEGIN}\nAAAA\n{END}\n", "its ca.crt has a certificate that can't be read"),
        (f"{BEGIN}\nA\n{END}\n", "its ca.crt has a certificate that can't be read"),
        (f"{BEGIN}\nAAAA\n", "its ca.crt has a block of PEM that doesn't end"),
        (f"{BEGIN}\nX-Header: a-b\n\nAAAA\n{END}\n", "its ca.crt has a block of PEM that doesn't end"),
        ("PEM KEY", "its ca.crt has a block PRIVATE KEY, and a key belongs into a Secret; leave only certificates"),
        ("PEM -----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----", "its ca.crt has a block X509 CRL; leave"),
        ("PEM" + " " * (2 << 20), "its ca.crt is larger than 256 KiB"),
    ],
)
def test_authorities_that_cannot_be_used_say_why(text: str, problem: str, authority: Authority) -> None:
    """And nothing of what is in them, least of all a key."""
    key = authority.own.key.read_text()
    spec = stated(text.replace("PEM", authority.own.pem).replace(" KEY", f" {key}") if text.startswith("PEM") else text)
    assert spec.keys() == {"problem"}
    assert spec["problem"].startswith(problem)
    assert key.splitlines()[1] not in spec["problem"]


def test_a_key_alone_is_no_authority_either(authority: Authority) -> None:
    """Whatever it is called."""
    assert "a key belongs into a Secret" in stated(authority.own.key.read_text())["problem"]
    assert (
        "a key belongs into a Secret"
        in stated(authority.own.key.read_text().replace("PRIVATE", "RSA PRIVATE"))["problem"]
    )
