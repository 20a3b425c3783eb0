"""Creates an authority and signs certificates: bytes in and out, time as an argument. ECDSA on P-256.

Not here: where any of it is kept (`store`), and for which names (`local`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from locallb.certificates.local import NETWORKS, VALID_DAYS
from locallb.model.identities import Fingerprint

YEARS = 10
_LONGEST = 55
"""Letters of an authority's name; a subject has room for 64."""
_DAY = dt.timedelta(days=1)
"""How much earlier than now validity begins: clocks of containers and other machines differ."""


class SigningError(ValueError):
    """What is given can't be used: half a sentence."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateDetails:
    """What a certificate says of itself."""

    name: str
    fingerprint: Fingerprint
    """sha256, hex, of the whole certificate."""
    begins: dt.datetime
    ends: dt.datetime
    domains: tuple[str, ...]
    """Below which hosts lie that an authority may certify; none: anywhere."""
    serial: str
    """Hex."""
    key: bytes = field(repr=False)
    """The public key, as the private one tells it, too."""


def make_authority(name: str, domains: Iterable[str], now: dt.datetime) -> KeyPair:
    """Make an authority that counts below these domains and for private addresses only; below none: everywhere.

    Its subject is its own: browsers' stores list certificates of one subject as one.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    own = f"{name[:_LONGEST]} {hashlib.sha256(_public(key.public_key())).hexdigest()[:8]}"
    subject = x509.Name([_attribute(NameOID.ORGANIZATION_NAME, "local-lb"), _attribute(NameOID.COMMON_NAME, own)])
    ends = now + dt.timedelta(days=365 * YEARS)
    builder = _builder(subject, subject, key, key, now - _DAY, ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    if permitted := [x509.DNSName(domain) for domain in domains]:
        networks = [x509.IPAddress(ip_network(network)) for network in NETWORKS]
        builder = builder.add_extension(x509.NameConstraints([*permitted, *networks], None), critical=True)
    return _signed(builder, key, key)


def make_certificate(authority: KeyPair, hosts: Iterable[str], now: dt.datetime) -> KeyPair:
    """Make a certificate for hostnames and addresses. Raises SigningError."""
    issuer, signer = _certificate(authority.certificate), _key(authority.key)
    if issuer.public_key() != signer.public_key():
        raise SigningError("its key isn't the key of its certificate")
    begins, ends = max(now - _DAY, issuer.not_valid_before_utc), now + dt.timedelta(days=VALID_DAYS)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([_attribute(NameOID.ORGANIZATION_NAME, "local-lb")])
    builder = _builder(subject, issuer.subject, key, signer, begins, min(ends, issuer.not_valid_after_utc))
    builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return _signed(builder, key, signer)


def observed(pem: bytes) -> CertificateDetails:
    """Read what a certificate says. Raises SigningError."""
    certificate = _certificate(pem)
    try:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        constraints = [
            extension.value for extension in certificate.extensions if isinstance(extension.value, x509.NameConstraints)
        ]
    except ValueError as error:
        raise SigningError(f"it isn't a certificate that can be used ({error})") from None
    permitted = [name for constraint in constraints for name in constraint.permitted_subtrees or ()]
    return CertificateDetails(
        str(names[0].value) if names else "",
        Fingerprint(hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        tuple(name.value for name in permitted if isinstance(name, x509.DNSName)),
        f"{certificate.serial_number:x}",
        _public(certificate.public_key()),
    )


def public_part(key: bytes) -> bytes:
    """Return the public key of a private one, as `CertificateDetails.key` has it. Raises SigningError."""
    return _public(_key(key).public_key())


def _builder(  # noqa: PLR0913, PLR0917 - a certificate has so many parts
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    begins: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), begins, ends)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(identifier, critical=False).add_extension(by, critical=False)


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return KeyPair(certificate, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _usage(*, signs: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _attribute(kind: x509.ObjectIdentifier, text: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(kind, text[:64])


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise SigningError("it isn't a certificate in PEM") from None


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise SigningError("it isn't a key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SigningError("it isn't a key of ours")
    return key


def _public(key: object) -> bytes:
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SigningError("it has a key that isn't ours")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    written: bytes = key.public_bytes(serialization.Encoding.DER, form)
    return written
