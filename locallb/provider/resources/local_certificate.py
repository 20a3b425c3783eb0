"""LocalCertificate: a certificate of this user's own authority, made and put where a proxy's Envoy reads it.

The files' names have a digest of what it is made of in them, as those of `ServedCertificate` have: a successor lies
beside until nobody refers to its predecessor. Not here: when it is due (`certificates.local`), who refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from locallb.envoy.http import names
from locallb.model.http.serving import LocalCertificate as Planned
from locallb.provider.resources import certificate_files
from locallb.provider.resources.certificate_files import CertificateFilesError
from locallb.resources.codec import is_unknown
from locallb.resources.errors import ProviderError
from locallb.resources.properties import LocalCertificateInputs, LocalCertificateState
from locallb.resources.resource_type import Difference, ResourceType, changed, grown, proxy_faults
from locallb.storage.key_pairs import key_pair_fault
from locallb.storage.proxy_directories import Proxies

_REPLACING = frozenset({"proxy", "certificate", "hosts", "authority", "period"})


class LocalCertificate(ResourceType[LocalCertificateInputs, LocalCertificateState]):
    """Makes a certificate and writes its two files, before anything refers to them."""

    inputs = LocalCertificateInputs
    state = LocalCertificateState

    def check(self, new: LocalCertificateInputs) -> Iterator[tuple[str, str]]:
        """Accept what a certificate can be made for."""
        yield from proxy_faults(new.proxy)
        if not is_unknown(new.hosts) and not new.hosts:
            yield "hosts", "a certificate is for one host at least"

    def diff(self, old: LocalCertificateState, new: LocalCertificateInputs) -> Difference:
        """Replace, new before old, whatever changes what is in the files."""
        return Difference(changed(old, new), _REPLACING)

    def preview_outputs(self, new: LocalCertificateInputs, old: LocalCertificateState | None) -> Mapping[str, object]:
        """Return the name."""
        del old
        return {} if is_unknown(new.authority) else {"chain": names.chain_file(_planned(new))}

    def create(self, new: LocalCertificateInputs) -> tuple[str, LocalCertificateState]:
        """Make the certificate and write the files, in the proxy's directory or in one that is made for it."""
        from locallb.certificates import signing, store  # noqa: PLC0415 - few stacks need what they load

        now, failure = store.now(), f"the certificate for {', '.join(new.hosts)} can't be made"
        existing = store.find()
        if existing is None or existing.observed.fingerprint != new.authority:
            raise ProviderError(f"{failure}: your own authority is another one than was planned with; run up again")
        try:
            pair = store.sign(existing, new.hosts, now)
            place = Proxies.ours().make(new.proxy, new.owner, new.name).path
            certificate_files.write(place, _planned(new), pair.certificate, pair.key, shared=new.shared)
        except (store.AuthorityError, CertificateFilesError) as error:
            raise ProviderError(f"{failure}: {error}") from None
        made, chain = signing.observed(pair.certificate), names.chain_file(_planned(new))
        state = grown(self.state, new, chain=chain, serial=made.serial, expires=f"{made.ends:%Y-%m-%dT%H:%M:%SZ}")
        return f"{new.proxy}/{chain}", state

    def read(self, state: LocalCertificateState) -> LocalCertificateState | None:
        """Check that both files have the certificate that was made, and its key, and that it is valid now.

        It isn't where the clock was wrong when it was made.
        """
        from locallb.certificates import signing, store  # noqa: PLC0415 - as above

        pair = certificate_files.read(Proxies.ours().path(state.proxy), _planned(state))
        try:
            made = signing.observed(pair[0]) if pair and not key_pair_fault(*pair) else None
        except signing.SigningError:
            made = None
        return state if made and made.serial == state.serial and made.begins <= store.now() < made.ends else None

    def update(self, old: LocalCertificateState, new: LocalCertificateInputs) -> LocalCertificateState:
        """Make another one: for another owner or another mode."""
        del old
        return self.create(new)[1]

    def delete(self, state: LocalCertificateState) -> None:
        """Remove the files, unless the directory has another owner by now; and the directory, if it is empty."""
        if not self.belongs_to_copied_project(state.owner):
            certificate_files.remove(state.proxy, state.owner, _planned(state))


def _planned(existing: LocalCertificateInputs) -> Planned:
    return Planned(existing.certificate, tuple(existing.hosts), existing.authority, existing.period)
