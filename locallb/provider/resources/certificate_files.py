"""The two files of a certificate in a proxy's directory: written, read and removed, for any kind of certificate."""

from __future__ import annotations

from pathlib import Path

from locallb.envoy.http import names
from locallb.model.http.serving import AnyCertificate
from locallb.model.identities import Owner, ProxyId
from locallb.storage import files
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


def read(directory: Path, certificate: AnyCertificate) -> tuple[bytes, bytes] | None:
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
    return names.chain_file(certificate), names.key_file(certificate)
