"""ServedCertificate: a certificate and its key where a proxy's Envoy reads them, and nowhere else.

The files' names have the digest in them: a successor lies beside until nobody refers to its predecessor, so that no
handshake ever meets half of a pair. Not here: who refers to them (`ProxyConfig`).
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
from locallb.model.http_serving import Certificate
from locallb.model.identities import ClusterName, ObjectKey
from locallb.provider.resources import certificate_files
from locallb.provider.resources.certificate_files import CertificateFilesError
from locallb.resources.codec import is_unknown
from locallb.resources.properties import ServedCertificateInputs, ServedCertificateState
from locallb.resources.resource_type import InputChanges, ProviderError, ResourceType, changed, grown, proxy_faults
from locallb.storage.key_pairs import key_pair_fault
from locallb.storage.proxy_directories import Proxies

_LARGEST = 32 << 20
"""Bytes of a file of manifests: as many as its source reads."""
_REPLACING = frozenset({"proxy", "file", "namespace", "secret", "digest", "serves"})


class ServedCertificate(ResourceType[ServedCertificateInputs, ServedCertificateState]):
    """Reads a Secret and writes its two files, before anything refers to them."""

    inputs = ServedCertificateInputs
    state = ServedCertificateState

    def check(self, new: ServedCertificateInputs) -> Iterator[tuple[str, str]]:
        """Accept digests that can stand in a file's name."""
        yield from proxy_faults(new.proxy)
        if not is_unknown(new.digest) and (not new.digest or set(new.digest) - set("0123456789abcdef")):
            yield "digest", f"{new.digest!r} isn't hexadecimal"

    def diff(self, old: ServedCertificateState, new: ServedCertificateInputs) -> InputChanges:
        """Replace, new before old, whatever changes what is in the files or what they are called."""
        renamed = _cluster(old) != _cluster(new)
        return InputChanges(changed(old, new), _REPLACING if renamed else _REPLACING - {"serves"})

    def preview_outputs(self, new: ServedCertificateInputs, old: ServedCertificateState | None) -> Mapping[str, object]:
        del old
        return {} if is_unknown(new.digest) else {"chain": http_chains.chain_file(_certificate(new))}

    def create(self, new: ServedCertificateInputs) -> tuple[str, ServedCertificateState]:
        """Read the Secret and write the files, in the proxy's directory or in one that is made for it."""
        pair, certificate = _pair(new), _certificate(new)
        chain = http_chains.chain_file(certificate)
        try:
            place = Proxies.ours().make(new.proxy, new.owner, new.name).path
            certificate_files.write(place, certificate, pair.chain, pair.key, shared=new.shared)
        except CertificateFilesError as error:
            raise ProviderError(f"Secret {new.namespace}/{new.secret} can't be served: {error}") from None
        return f"{new.proxy}/{chain}", grown(self.state, new, chain=chain)

    def read(self, state: ServedCertificateState) -> ServedCertificateState | None:
        """Check that both files have what the digest says."""
        pair = certificate_files.read_certificate_file(Proxies.ours().path(state.proxy), _certificate(state))
        return state if pair and TlsPair(*pair).digest == state.digest else None

    def update(self, old: ServedCertificateState, new: ServedCertificateInputs) -> ServedCertificateState:
        """Write them again: for another owner or another mode."""
        del old
        return self.create(new)[1]

    def delete(self, state: ServedCertificateState) -> None:
        """Remove the files, unless the directory has another owner by now; and the directory, if it is empty."""
        if not self.belongs_to_copied_project(state.owner):
            certificate_files.remove(state.proxy, state.owner, _certificate(state))


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
