"""Keys that OpenSSL takes and Envoy doesn't: one would keep all of its proxy from being proven."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from locallb.storage.key_pairs import key_pair_fault


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ("P-256", ""),
        ("P-384", ""),
        ("P-521", ""),
        ("secp256k1", "the curve secp256k1; make one on P-256"),
        ("brainpoolP256r1", "the curve brainpoolP256r1; make one on P-256"),
    ],
)
def test_only_curves_that_envoy_serves_with(curve: str, said: str, tmp_path: Path) -> None:
    """Others are refused by name, before a proxy hears of them."""
    out = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt"), "-subj", "/CN=shop.test"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes", *out]
    subprocess.run(make, check=True, capture_output=True)
    fault = key_pair_fault((tmp_path / "crt").read_bytes(), (tmp_path / "key").read_bytes())
    assert said in fault
    assert bool(fault) == bool(said)
