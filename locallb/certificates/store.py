"""Creates and stores this user's own authority, and signs by it: ECDSA on P-256.

`ca.crt` is readable by all users, `ca.key` only by its owner.

Any other content is reported in one sentence and left alone. The certificate is written last, so that an authority
without a key was never made. Not here: for which names it signs (`local`), and its trust
stores (`trust_stores`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from locallb import safe_files
from locallb.certificates.local import DOMAINS, NETWORKS, VALID_DAYS
from locallb.model.errors import ClientError
from locallb.model.identities import Fingerprint
from locallb.storage import files, paths

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


CERTIFICATE, KEY = "ca.crt", "ca.key"
_PUBLIC = 0o644
_LIMIT = 1 << 16
_REMEDY = "make another one with `locallb ca create --replace`"


class AuthorityError(ClientError):
    """This user's own authority can't be used: one sentence."""


class Authority(Struct, frozen=True):
    """This user's own authority, its key left where it is."""

    directory: Path
    pem: str
    observed: CertificateDetails

    @property
    def file(self) -> Path:
        return self.directory / CERTIFICATE


def now() -> dt.datetime:
    """Return what time it is."""
    return dt.datetime.now(dt.UTC)


def directory() -> Path:
    """Return where this user's authority is. Raises PlaceError."""
    return paths.data_home() / "ca"


def find(place: Path | None = None) -> Authority | None:
    """Return the authority that there is. Raises AuthorityError."""
    place = place or directory()
    if not _is_ours(place, 0o022, "write there"):
        return None
    text = _text(place / CERTIFICATE, 0o022, "write it")
    if text is None:
        return None
    try:
        return Authority(place, text, observed(text.encode()))
    except SigningError as error:
        raise AuthorityError(f"{place / CERTIFICATE} can't be used: {error}; {_REMEDY}") from None


def ensure(now: dt.datetime) -> Authority:
    """Return the authority, made if there is none. Raises ClientError."""
    return find() or create(DOMAINS, now)


def create(domains: Iterable[str], now: dt.datetime, *, replace: bool = False) -> Authority:
    """Make one, unless another process has meanwhile; `replace`: in any case. Raises ClientError."""
    place = paths.private_directory(directory())
    _is_ours(place, 0 if replace else 0o022, "write there")
    place.chmod(paths.PRIVATE)
    with files.locked(place):
        safe_files.remove_abandoned(place)
        if not replace and (existing := find(place)):
            return existing
        pair = make_authority(subject_of_user(), domains, now)
        _put(place, pair)
    return Authority(place, pair.certificate.decode(), observed(pair.certificate))


def _put(place: Path, pair: KeyPair) -> None:
    """Write both before the one that was there goes: a full disk takes none away. Raises FilesError."""
    sibling = {place / KEY: files.write_sibling(place / KEY, pair.key.decode(), durable=True)}
    try:
        sibling[place / CERTIFICATE] = files.write_sibling(
            place / CERTIFICATE, pair.certificate.decode(), mode=_PUBLIC, durable=True
        )
        files.remove(place / CERTIFICATE)
        for path, written in sibling.items():
            written.replace(path)
    finally:
        for written in sibling.values():
            safe_files.discard(written)


def fault(existing: Authority, now: dt.datetime) -> str:
    """Return why nothing can be signed with it, in one sentence; empty where it can."""
    try:
        key(existing, now)
    except AuthorityError as error:
        return str(error)
    return ""


def sign(existing: Authority, hosts: Iterable[str], now: dt.datetime) -> KeyPair:
    """Make a certificate for hosts. Raises AuthorityError."""
    return make_certificate(KeyPair(existing.pem.encode(), key(existing, now)), hosts, now)


def key(existing: Authority, now: dt.datetime) -> bytes:
    """Read the key, where it may be used now. Raises AuthorityError."""
    path = existing.directory / KEY
    if now < existing.observed.begins:
        raise AuthorityError(
            f"the clock says {now:%Y-%m-%d}, and {existing.file} is valid from {existing.observed.begins:%Y-%m-%d}: "
            f"set the clock"
        )
    if now >= existing.observed.ends:
        raise AuthorityError(f"{existing.file} has ended on {existing.observed.ends:%Y-%m-%d}; {_REMEDY}")
    text = _text(path, 0o077, "read it")
    if text is None:
        raise AuthorityError(
            f"{path} is gone, without which {existing.file} signs nothing; bring it back, or {_REMEDY}"
        )
    try:
        if public_part(text.encode()) != existing.observed.key:
            raise AuthorityError(f"{path} isn't the key of {existing.file}; bring back the right one, or {_REMEDY}")
    except SigningError as error:
        raise AuthorityError(f"{path} can't be used: {error}; bring it back, or {_REMEDY}") from None
    return text.encode()


def _text(path: Path, forbidden: int, party: str) -> str | None:
    """Read a file of ours; None if there is none. Raises AuthorityError."""
    if not _is_ours(path, forbidden, party):
        return None
    try:
        return files.read_shared(path, _LIMIT)
    except files.FilesError as error:
        raise AuthorityError(f"{error}; {_REMEDY}") from None


def _is_ours(path: Path, forbidden: int, party: str) -> bool:
    """Return whether it is there. Raises AuthorityError for a link, another user's, or one that others may use."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise AuthorityError(f"{path} can't be looked at: {error.strerror}; correct XDG_DATA_HOME") from None
    if stat.S_ISLNK(status.st_mode):
        raise AuthorityError(f"{path} is a link; put what it leads to in its place")
    if status.st_uid != os.geteuid():
        raise AuthorityError(f"{path} belongs to user {status.st_uid}; run as that user, or set XDG_DATA_HOME")
    mode = stat.S_IMODE(status.st_mode)
    if mode & forbidden:
        raise AuthorityError(
            f"{path} has mode {mode:o}, so that others may {party}: `chmod {mode & ~forbidden:o} {path}` if nobody"
            f" has, or {_REMEDY}"
        )
    return True


def subject_of_user() -> str:
    """Return a name that tells the authority from others in a list."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"local-lb {user}@{os.uname().nodename}"
