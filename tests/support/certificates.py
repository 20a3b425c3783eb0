"""Certificates for tests, made by openssl: an authority, and who is signed by it; stores that trust one."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from locallb.envoy import http_chains
from locallb.kubernetes.tls_parsing import TlsPair
from locallb.model.http_serving import Certificate
from locallb.model.identities import ClusterName
from locallb.storage.key_pairs import is_for_tcp_alone

P256, ED25519 = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), ("-newkey", "ed25519")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    chain: Path
    key: Path

    @property
    def pem(self) -> str:
        return self.chain.read_text()

    def reference(self, name: str) -> Certificate:
        """Return what a configuration says of it: the Secret `default/<name>` of cluster `local`."""
        chain = self.chain.read_bytes()
        digest = TlsPair(chain, self.key.read_bytes()).digest
        return Certificate(ClusterName("local"), "default", name, digest, tcp_only=is_for_tcp_alone(chain))

    def put(self, directory: Path, name: str) -> None:
        """Write both where Envoy looks for them."""
        reference = self.reference(name)
        (directory / http_chains.chain_file(reference)).write_bytes(self.chain.read_bytes())
        (directory / http_chains.key_file(reference)).write_bytes(self.key.read_bytes())


class Authority:
    """Signs certificates below a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.own = Pair(directory / f"{name}.crt", directory / f"{name}.key")
        _openssl("req", "-x509", "-subj", f"/CN={name}", "-days", "2", *self._new(self.own))

    def sign(self, *subjects: str, kind: tuple[str, ...] = P256) -> Pair:
        """Make a certificate for these names, such as `DNS:a.test`, with a key of a kind."""
        stem = f"{len(list(self.directory.iterdir()))}-signed"
        pair = Pair(self.directory / f"{stem}.crt", self.directory / f"{stem}.key")
        alternatives = ",".join(subjects)
        by = ("-CA", str(self.own.chain), "-CAkey", str(self.own.key))
        more = (
            "-subj",
            "/CN=signed",
            "-addext",
            f"subjectAltName={alternatives}",
            "-addext",
            "basicConstraints=CA:FALSE",
        )
        _openssl("req", "-x509", "-days", "2", *by, *more, *self._new(pair, kind))
        return pair

    def sign_for(self, begins: timedelta, ends: timedelta, *subjects: str) -> Pair:
        """Make the same of other dates, from now."""
        pair, now = self.sign(*subjects), datetime.now(UTC)
        made = x509.load_pem_x509_certificate(pair.chain.read_bytes())
        builder = x509.CertificateBuilder(made.issuer, made.subject, made.public_key(), made.serial_number)
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        for extension in made.extensions:
            builder = builder.add_extension(extension.value, critical=extension.critical)
        signer = serialization.load_pem_private_key(self.own.key.read_bytes(), None)
        assert isinstance(signer, EllipticCurvePrivateKey)
        signed = builder.sign(signer, hashes.SHA256())
        pair.chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return pair

    def _new(self, pair: Pair, kind: tuple[str, ...] = P256) -> tuple[str, ...]:
        return (*kind, "-nodes", "-keyout", str(pair.key), "-out", str(pair.chain))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def changed(pem: str, change: tuple[int, int]) -> str:
    """Return a certificate of which one byte is another."""
    at, byte = change
    der = bytearray(base64.b64decode("".join(pem.split("-----")[2].split())))
    der[at % len(der)] = byte
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"


def certutil() -> str:
    """Find the tool of browsers' stores. Without one a test is skipped, but fails in CI, which has to have one."""
    program = shutil.which("certutil")
    if program is None:
        why = "there is no certutil (Debian: apt install libnss3-tools)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return program


def nss(place: Path, *terms: str) -> str:
    """Do something to a browser's store as a person would."""
    command = [certutil(), "-d", f"sql:{place}", *terms]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
