"""LocalCertificate and ServedCertificate: a certificate and its key where a proxy's Envoy reads them, and nowhere else.

One is of this user's own authority, the other of a Secret. The files' names contain a digest, so that a successor
exists next to its predecessor until no configuration refers to that: no handshake ever meets half of a pair.

Not here: when a certificate is due (`certificates.local`), and the configuration that refers to one (`proxy_config`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from locallb import safe_files
from locallb.envoy import http_chains
from locallb.kubernetes.api import live_object
from locallb.kubernetes.documents import DocumentError, read_documents
from locallb.kubernetes.tls_parsing import TlsPair, TlsSecretError, secret_among, tls_pair
from locallb.model.errors import reason
from locallb.model.http_serving import AnyCertificate, Certificate
from locallb.model.http_serving import LocalCertificate as Planned
from locallb.model.identities import ClusterName, ObjectKey, Owner, ProxyId
from locallb.resources.codec import is_unknown
from locallb.resources.properties import (
    LocalCertificateInputs,
    LocalCertificateState,
    ServedCertificateInputs,
    ServedCertificateState,
)
from locallb.resources.resource_type import InputChanges, ProviderError, ResourceType, changed, grown, proxy_faults
from locallb.storage import files
from locallb.storage.key_pairs import key_pair_fault
from locallb.storage.proxy_directories import OWNER, Proxies


class CertificateFilesError(Exception):
    """They can't be written: half a sentence."""


def write(directory: Path, certificate: AnyCertificate, chain: bytes, key: bytes, *, shared: bool) -> None:
    """Write both, the key readable for Envoy alone. Raises CertificateFilesError; then the former files are kept."""
    try:
        texts = {directory / name: part.decode() for name, part in zip(_files(certificate), (chain, key), strict=True)}
        files.write_all(texts, mode=files.SHARED if shared else files.PRIVATE)
    except UnicodeDecodeError:
        raise CertificateFilesError("it isn't PEM") from None
    except files.FilesError as error:
        raise CertificateFilesError(str(error)) from None


def read_certificate_file(directory: Path, certificate: AnyCertificate) -> tuple[bytes, bytes] | None:
    """Return certificate and key, where both are there. Raises FilesError."""
    chain, key = (files.read_shared(directory / name) for name in _files(certificate))
    return None if chain is None or key is None else (chain.encode(), key.encode())


def remove(proxy: ProxyId, owner: Owner, certificate: AnyCertificate) -> None:
    """Remove both, unless the directory has another owner by now; and the directory, if nothing else is in it."""
    directory = Proxies.ours().find(proxy)
    if directory is None or directory.owner != owner:
        return
    for name in _files(certificate):
        files.remove(directory.path / name)
    if {path.name for path in directory.path.iterdir()} == {OWNER}:
        Proxies.ours().remove(proxy)


def _files(certificate: AnyCertificate) -> tuple[str, str]:
    return http_chains.chain_file(certificate), http_chains.key_file(certificate)


_LOCAL_REPLACING = frozenset({"proxy", "certificate", "hosts", "authority", "period"})


class LocalCertificate(ResourceType[LocalCertificateInputs, LocalCertificateState]):
    """Makes a certificate and writes its two files, before anything refers to them."""

    def check(self, new: LocalCertificateInputs) -> Iterator[tuple[str, str]]:
        """Accept what a certificate can be made for."""
        yield from proxy_faults(new.proxy)
        if not is_unknown(new.hosts) and not new.hosts:
            yield "hosts", "a certificate is for one host at least"

    def diff(self, old: LocalCertificateState, new: LocalCertificateInputs) -> InputChanges:
        """Replace, new before old, whatever changes what is in the files."""
        return InputChanges(changed(old, new), _LOCAL_REPLACING)

    def preview_outputs(self, new: LocalCertificateInputs, old: LocalCertificateState | None) -> Mapping[str, object]:
        del old
        return {} if is_unknown(new.authority) else {"chain": http_chains.chain_file(_planned(new))}

    def create(self, new: LocalCertificateInputs) -> tuple[str, LocalCertificateState]:
        """Make the certificate and write the files, in the proxy's directory or in one that is made for it."""
        from locallb.certificates import store  # noqa: PLC0415 - few stacks need what it loads

        now, failure = store.now(), f"the certificate for {', '.join(new.hosts)} can't be made"
        existing = store.find()
        if existing is None or existing.observed.fingerprint != new.authority:
            raise ProviderError(f"{failure}: your own authority is another one than was planned with; run up again")
        try:
            pair = store.sign(existing, new.hosts, now)
            place = Proxies.ours().make(new.proxy, new.owner, new.name).path
            write(place, _planned(new), pair.certificate, pair.key, shared=new.shared)
        except (store.AuthorityError, CertificateFilesError) as error:
            raise ProviderError(f"{failure}: {error}") from None
        made, chain = store.observed(pair.certificate), http_chains.chain_file(_planned(new))
        state = grown(self.state, new, chain=chain, serial=made.serial, expires=f"{made.ends:%Y-%m-%dT%H:%M:%SZ}")
        return f"{new.proxy}/{chain}", state

    def read(self, state: LocalCertificateState) -> LocalCertificateState | None:
        """Check that both files have the certificate that was made, and its key, and that it is valid now.

        It isn't where the clock was wrong when it was made.
        """
        from locallb.certificates import store  # noqa: PLC0415 - as above

        pair = read_certificate_file(Proxies.ours().path(state.proxy), _planned(state))
        try:
            made = store.observed(pair[0]) if pair and not key_pair_fault(*pair) else None
        except store.SigningError:
            made = None
        return state if made and made.serial == state.serial and made.begins <= store.now() < made.ends else None

    def delete(self, state: LocalCertificateState) -> None:
        """Remove the files, unless the directory has another owner by now; and the directory, if it is empty."""
        if not self.belongs_to_copied_project(state.owner):
            remove(state.proxy, state.owner, _planned(state))


def _planned(existing: LocalCertificateInputs) -> Planned:
    return Planned(existing.certificate, tuple(existing.hosts), existing.authority, existing.period)


_LARGEST = 32 << 20
"""Bytes of a file of manifests: as many as its source reads."""
_SERVED_REPLACING = frozenset({"proxy", "file", "namespace", "secret", "digest", "serves"})


class ServedCertificate(ResourceType[ServedCertificateInputs, ServedCertificateState]):
    """Reads a Secret and writes its two files, before anything refers to them."""

    def check(self, new: ServedCertificateInputs) -> Iterator[tuple[str, str]]:
        """Accept digests that can stand in a file's name."""
        yield from proxy_faults(new.proxy)
        if not is_unknown(new.digest) and (not new.digest or set(new.digest) - set("0123456789abcdef")):
            yield "digest", f"{new.digest!r} isn't hexadecimal"

    def diff(self, old: ServedCertificateState, new: ServedCertificateInputs) -> InputChanges:
        """Replace, new before old, whatever changes what is in the files or what they are called."""
        renamed = _cluster(old) != _cluster(new)
        return InputChanges(changed(old, new), _SERVED_REPLACING if renamed else _SERVED_REPLACING - {"serves"})

    def preview_outputs(self, new: ServedCertificateInputs, old: ServedCertificateState | None) -> Mapping[str, object]:
        del old
        return {} if is_unknown(new.digest) else {"chain": http_chains.chain_file(_certificate(new))}

    def create(self, new: ServedCertificateInputs) -> tuple[str, ServedCertificateState]:
        """Read the Secret and write the files, in the proxy's directory or in one that is made for it."""
        pair, certificate = _pair(new), _certificate(new)
        chain = http_chains.chain_file(certificate)
        try:
            place = Proxies.ours().make(new.proxy, new.owner, new.name).path
            write(place, certificate, pair.chain, pair.key, shared=new.shared)
        except CertificateFilesError as error:
            raise ProviderError(f"Secret {new.namespace}/{new.secret} can't be served: {error}") from None
        return f"{new.proxy}/{chain}", grown(self.state, new, chain=chain)

    def read(self, state: ServedCertificateState) -> ServedCertificateState | None:
        """Check that both files have what the digest says."""
        pair = read_certificate_file(Proxies.ours().path(state.proxy), _certificate(state))
        return state if pair and TlsPair(*pair).digest == state.digest else None

    def delete(self, state: ServedCertificateState) -> None:
        """Remove the files, unless the directory has another owner by now; and the directory, if it is empty."""
        if not self.belongs_to_copied_project(state.owner):
            remove(state.proxy, state.owner, _certificate(state))


def _pair(new: ServedCertificateInputs) -> TlsPair:
    """Read the pair. Raises ProviderError, KubeError."""
    subject = f"Secret {new.namespace}/{new.secret}"
    document = _in_file(new, subject) if new.file else live_object.secret(new.access, new.namespace, new.secret)
    if document is None:
        raise ProviderError(f"{subject} isn't there any more; run up again")
    try:
        pair = tls_pair(document)
    except TlsSecretError as error:
        raise ProviderError(f"{subject} can't be served: {error}") from None
    if pair.digest != new.digest:
        raise ProviderError(f"{subject} has changed since it was planned; run up again")
    if why := key_pair_fault(pair.chain, pair.key):
        raise ProviderError(f"{subject} can't be served: {why}")
    return pair


def _in_file(new: ServedCertificateInputs, subject: str) -> Mapping[object, object] | None:
    path = Path(new.file)
    try:
        documents = read_documents(safe_files.read(path, _LARGEST), is_json=path.suffix == ".json")
    except (OSError, DocumentError) as error:
        raise ProviderError(f"{subject} can't be read: {path}: {reason(error)}") from None
    return secret_among((document.value for document in documents), new.namespace, new.secret, new.digest)


def _certificate(existing: ServedCertificateInputs) -> Certificate:
    return Certificate(_cluster(existing), existing.namespace, existing.secret, existing.digest, existing.file)


def _cluster(existing: ServedCertificateInputs) -> ClusterName:
    """Return the cluster of its Secret."""
    served = ObjectKey.parse(existing.serves) if existing.serves else existing.owner.service
    return served.cluster
