"""ProxyConfig: a proxy's directory and Envoy's files in it, brought up to date under a running Envoy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from locallb import safe_files
from locallb.envoy import push, rollout
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.fragments import Tagged, has_foreign, joined, split_parts
from locallb.envoy.http_chains import SYSTEM_AUTHORITIES
from locallb.host import limits
from locallb.ledger.claims import refuse_copy
from locallb.resources.codec import is_unknown
from locallb.resources.properties import ProxyConfigInputs, ProxyConfigState
from locallb.resources.resource_type import ResourceType, grown, proxy_faults
from locallb.runtimes.handover import stop_all
from locallb.storage import files
from locallb.storage.proxy_directories import Proxies, ProxyDirectory

_NEEDED = (rollout.BOOTSTRAP, rollout.LISTENERS, rollout.CLUSTERS)

_LARGEST_BUNDLE = 16 << 20
"""Bytes of the authorities that this host trusts."""


class ProxyConfig(ResourceType[ProxyConfigInputs, ProxyConfigState]):
    """Writes what differs, in the order of `rollout`."""

    replaced_for = frozenset({"proxy"})
    """Replace for another proxy; everything else is an update."""

    def check(self, new: ProxyConfigInputs) -> Iterator[tuple[str, str]]:
        """Accept names of files that are ours only; the texts are Envoy's to judge."""
        yield from proxy_faults(new.proxy)
        if is_unknown(new.files):
            return
        for name in new.files:
            if not rollout.NAME.fullmatch(name):
                expected = ", ".join((*_NEEDED, "eds-*.json", "rds-*.json"))
                yield "files", f"{name!r} isn't a file of a proxy: expected are {expected} and sds-*.json"
        needed = () if _in_parts(new.files) else _NEEDED
        yield from (("files", f"{name} is missing") for name in needed if name not in new.files)

    def shown(self, changed: frozenset[str]) -> frozenset[str]:
        """Show no files with other listeners or routes; of backends, and of what others changed, nothing else tells."""
        return changed - {"files", "versions", "released"} if "versions" in changed else changed

    def preview_outputs(self, new: ProxyConfigInputs, old: ProxyConfigState | None) -> Mapping[str, object]:
        """Return all outputs: they follow from the inputs."""
        del old
        if is_unknown(new.files) or is_unknown(new.proxy):
            return {}
        return {"directory": str(Proxies.ours().path(new.proxy)), "bootstrap": rollout.fingerprint(new.files)}

    def create(self, new: ProxyConfigInputs) -> tuple[str, ProxyConfigState]:
        """Make the directory, or adopt ours, and write the files."""
        directory = Proxies.ours().make(new.proxy, new.owner, new.name)
        return new.proxy, self._write(directory, new)

    def read(self, state: ProxyConfigState) -> ProxyConfigState | None:
        """Read what is on disk: a file that was changed or removed by hand shows as a changed property."""
        directory = Proxies.ours().find(state.proxy)
        if directory is None or directory.owner != state.owner:
            return None
        texts = push.texts(directory.path)
        if _in_parts(state.files):
            texts = _own(texts)
        shared = Proxies.ours().is_shared(state.proxy)
        return replace(state, name=directory.name, files=texts, shared=shared, bootstrap=rollout.fingerprint(texts))

    def update(self, old: ProxyConfigState, new: ProxyConfigInputs) -> ProxyConfigState:
        """Write what differs; the directory is signed by its new owner where that changed."""
        before, after = old.owner, new.owner
        if before != after:
            refuse_copy(f"proxy {new.proxy}", before, after)
        proxies = Proxies.ours()
        directory = proxies.find(new.proxy)
        if directory is None or directory.owner not in (before, after):
            directory = proxies.make(new.proxy, after, new.name)
        proxies.sign(new.proxy, after, new.name)
        return self._write(directory, new)

    def delete(self, state: ProxyConfigState) -> None:
        """Remove the directory, if it is still ours, after all processes that still run in it.

        A refresh loses a process that hangs, or that an interrupted run had drained.
        """
        owner = state.owner
        directory = Proxies.ours().find(state.proxy)
        if self.belongs_to_copied_project(owner) or (directory and directory.owner != owner):
            return
        stop_all(Proxies.ours().path(state.proxy))
        Proxies.ours().remove(state.proxy)

    def _write(self, directory: ProxyDirectory, new: ProxyConfigInputs) -> ProxyConfigState:
        texts = push.texts(directory.path)
        if not _in_parts(new.files):
            _require_watches(directory.path, texts, new)
        Proxies.ours().share(new.proxy, shared=new.shared)
        mode = files.SHARED if new.shared else files.PRIVATE
        _set_modes(directory.path, texts, mode)
        if SYSTEM_AUTHORITIES in new.files.get(rollout.CLUSTERS, ""):
            files.write(directory.path / SYSTEM_AUTHORITIES, _system_authorities(), mode=mode)
        if rollout.new_gate({}, new.files):
            push.close_gate(directory.path, mode)
        steps = _begin(texts, new.files) if _in_parts(new.files) else rollout.steps(texts, new.files)
        push.roll_out(directory.path, steps, mode)
        return grown(self.state, new, directory=str(directory.path), bootstrap=rollout.fingerprint(new.files))


def _set_modes(directory: Path, texts: Mapping[str, str], mode: int) -> None:
    """Set the mode of new files on the unchanged ones."""
    for name in texts:
        files.set_mode(directory / name, mode)


def _require_watches(directory: Path, texts: Mapping[str, str], new: ProxyConfigInputs) -> None:
    """Refuse a change for which this host has no watches left: an Envoy that can't have what it watches aborts.

    Whether one runs is asked only then: the answer would come before the change.
    """
    watches = rollout.more_watches(texts, new.files)
    if limits.available(watches) < watches and EnvoyAdmin(directory).answers():
        limits.require(watches, f"the change of proxy {new.name}")


def _in_parts(texts: Mapping[str, str]) -> bool:
    """Return whether listeners and clusters are said by `ServiceConfig`s and not here."""
    return set(texts) == {rollout.BOOTSTRAP}


def _begin(texts: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[rollout.RolloutStep]:
    """Put the bootstrap, and beside it listeners and clusters of parts only: none, unless there are some already."""
    yield from (rollout.Write(name, text) for name, text in wanted.items() if texts.get(name) != text)
    for name in (rollout.LISTENERS, rollout.CLUSTERS):
        text, version = joined(_of_parts(texts.get(name, "")))
        if name not in texts or has_foreign(texts[name]):
            yield rollout.Write(name, text, version)
    yield from (rollout.Remove(name) for name in sorted(texts.keys() - {*wanted, *_NEEDED}))


def _own(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the file that isn't made of parts; nothing where others lack something or have what is no part's.

    That is what a run leaves that was broken off as somebody took the proxy whole.
    """
    whole = texts.keys() >= set(_NEEDED)
    if not whole or any(has_foreign(texts[name]) for name in (rollout.LISTENERS, rollout.CLUSTERS)):
        return {}
    return {name: text for name, text in texts.items() if name == rollout.BOOTSTRAP}


def _of_parts(text: str) -> Mapping[str, Tagged]:
    return {name: tagged for name, tagged in split_parts(text).items() if tagged.part}


def _system_authorities() -> str:
    """Read what this host trusts, or what Mozilla does where it has nothing of its own."""
    import ssl  # noqa: PLC0415 - few proxies trust all authorities of this host

    import certifi  # noqa: PLC0415 - likewise

    own = ssl.get_default_verify_paths().cafile
    return safe_files.read(Path(own or certifi.where()), _LARGEST_BUNDLE).decode()
