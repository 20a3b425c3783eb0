"""ServedCertificate: a certificate and its key where a proxy's Envoy reads them, and nowhere else.

The files' names have the digest in them: a successor lies beside until nobody refers to its predecessor, so that no
handshake ever meets half of a pair. Not here: who refers to them (`ProxyConfig`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from locallb.envoy.http import names
from locallb.kubernetes.api import live_service
from locallb.kubernetes.documents import DocumentError, read_documents
from locallb.kubernetes.tls_secrets import TlsPair, TlsSecretError, secret_among, tls_pair
from locallb.model.http import Certificate
from locallb.resources.codec import is_unknown
from locallb.resources.errors import ProviderError
from locallb.resources.properties import ServedCertificateInputs, ServedCertificateState
from locallb.resources.resource_type import Difference, ResourceType, changed, grown, proxy_faults
from locallb.storage import files, paths
from locallb.storage.key_pairs import key_pair_fault
from locallb.storage.proxy_directories import OWNER, Proxies

_REPLACING = frozenset({"proxy", "file", "namespace", "secret", "digest"})


class ServedCertificate(ResourceType[ServedCertificateInputs, ServedCertificateState]):
    """Reads a Secret and writes its two files, before anybody refers to them."""

    inputs = ServedCertificateInputs
    state = ServedCertificateState

    def check(self, new: ServedCertificateInputs) -> Iterator[tuple[str, str]]:
        """Accept digests that can stand in a file's name."""
        yield from proxy_faults(new.proxy)
        if not is_unknown(new.digest) and (not new.digest or set(new.digest) - set("0123456789abcdef")):
            yield "digest", f"{new.digest!r} isn't hexadecimal"

    def diff(self, old: ServedCertificateState, new: ServedCertificateInputs) -> Difference:
        """Replace, new before old, whatever changes what is in the files."""
        return Difference(changed(old, new), _REPLACING)

    def preview_outputs(self, new: ServedCertificateInputs, old: ServedCertificateState | None) -> Mapping[str, object]:
        """Return the name."""
        del old
        return {} if is_unknown(new.digest) else {"chain": names.chain_file(_certificate(new))}

    def create(self, new: ServedCertificateInputs) -> tuple[str, ServedCertificateState]:
        """Read the Secret and write the files, in the proxy's directory or in one that is made for it."""
        pair = _pair(new)
        directory = _proxies().make(new.proxy, new.owner, new.name).path
        chain = names.chain_file(_certificate(new))
        _write(directory, new, pair)
        return f"{new.proxy}/{chain}", grown(self.state, new, chain=chain)

    def read(self, state: ServedCertificateState) -> ServedCertificateState | None:
        """Check that both files have what the digest says."""
        directory = _proxies().path(state.proxy)
        chain, key = (files.read_shared(directory / name) for name in _files(state))
        if chain is None or key is None or TlsPair(chain.encode(), key.encode()).digest != state.digest:
            return None
        return state

    def update(self, old: ServedCertificateState, new: ServedCertificateInputs) -> ServedCertificateState:
        """Write them again: for another owner or another mode."""
        del old
        return self.create(new)[1]

    def delete(self, state: ServedCertificateState) -> None:
        """Remove the files, unless the directory is somebody else's by now; nothing else in it: that as well."""
        directory = _proxies().find(state.proxy)
        if directory is None or directory.owner != state.owner or self.belongs_to_copied_project(state.owner):
            return
        for name in _files(state):
            files.remove(directory.path / name)
        if {path.name for path in directory.path.iterdir()} == {OWNER}:
            _proxies().remove(state.proxy)


def _pair(new: ServedCertificateInputs) -> TlsPair:
    """Read the pair. Raises ProviderError, KubeError."""
    told = f"Secret {new.namespace}/{new.secret}"
    document = _in_file(new, told) if new.file else live_service.secret(new.access, new.namespace, new.secret)
    if document is None:
        raise ProviderError(f"{told} isn't there any more; run up again")
    try:
        pair = tls_pair(document)
    except TlsSecretError as error:
        raise ProviderError(f"{told} can't be served: {error}") from None
    if pair.digest != new.digest:
        raise ProviderError(f"{told} has changed since it was planned; run up again")
    if why := key_pair_fault(pair.chain, pair.key):
        raise ProviderError(f"{told} can't be served: {why}")
    return pair


def _in_file(new: ServedCertificateInputs, told: str) -> Mapping[object, object] | None:
    path = Path(new.file)
    try:
        documents = read_documents(path.read_bytes(), is_json=path.suffix == ".json")
    except (OSError, DocumentError) as error:
        raise ProviderError(f"{told} can't be read: {path}: {error}") from None
    return secret_among((document.value for document in documents), new.namespace, new.secret, new.digest)


def _write(directory: Path, new: ServedCertificateInputs, pair: TlsPair) -> None:
    """Write both files, the key for nobody but Envoy."""
    mode = files.SHARED if new.shared else files.PRIVATE
    chain, key = (directory / name for name in _files(new))
    try:
        files.write(key, pair.key.decode(), mode=mode)
        files.write(chain, pair.chain.decode(), mode=mode)
    except (files.FilesError, UnicodeDecodeError) as error:
        files.remove(key)
        why = error if isinstance(error, files.FilesError) else "it isn't PEM"
        raise ProviderError(f"Secret {new.namespace}/{new.secret} can't be served: {why}") from None


def _files(known: ServedCertificateInputs) -> tuple[str, str]:
    certificate = _certificate(known)
    return names.chain_file(certificate), names.key_file(certificate)


def _certificate(known: ServedCertificateInputs) -> Certificate:
    return Certificate(known.owner.service.cluster, known.namespace, known.secret, known.digest, known.file)


def _proxies() -> Proxies:
    return Proxies(paths.proxies_root())
