"""Files that a running Envoy gets before the update that declares them: nobody waits for the rest of it.

A pod that comes or goes changes files of endpoints and nothing else, in no order, and Envoy asks nobody before it
follows. A route that leads elsewhere changes clusters and tables of routes, in the order of `envoy.rollout`. So these
are put where they belong as soon as the stack is this update's; it finds them there, and notes them in the state. Not
here: any change of listeners, certificates or the bootstrap (`provider.resources.proxy_config`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from locallb.envoy import push, rollout
from locallb.envoy.http.tls import SYSTEM_AUTHORITIES
from locallb.host import inotify
from locallb.model.errors import ClientError
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan, PlannedProxy
from locallb.storage import files
from locallb.storage.proxy_directories import Proxies

_MOST_WATCHES = 256
"""Watches that are tried for at a time: each takes a descriptor of this process for a moment."""
_AT_ONCE = 16
"""Proxies whose Envoys are waited for side by side, as many as an update changes at a time."""


class _Change(Struct, frozen=True, dict=True):
    """What a proxy's directory has, and what it shall have."""

    owner: ObjectKey
    directory: Path
    mode: int
    present: Mapping[str, str]
    wanted: Mapping[str, str]

    @cached_property
    def different(self) -> frozenset[str]:
        """The files that differ, or that only one of both has."""
        names = self.present.keys() | self.wanted.keys()
        return frozenset(name for name in names if self.present.get(name) != self.wanted.get(name))

    @property
    def of_endpoints(self) -> bool:
        """Whether files of endpoints differ and nothing else, of as many."""
        named = all(name.startswith(rollout.ENDPOINTS) for name in self.different)
        return named and self.present.keys() == self.wanted.keys()

    @property
    def of_routes(self) -> bool:
        """Whether clusters and tables of routes differ, and nothing that the update alone sees to."""
        lone = self.present.keys() ^ self.wanted.keys()
        follow = (name.startswith((rollout.ENDPOINTS, rollout.ROUTES)) for name in self.different - {rollout.CLUSTERS})
        before, after = (texts.get(rollout.CLUSTERS, "") for texts in (self.present, self.wanted))
        known = SYSTEM_AUTHORITIES not in after or SYSTEM_AUTHORITIES in before
        return (
            bool(before and after)
            and known
            and all(follow)
            and all(name.startswith(rollout.ENDPOINTS) for name in lone)
        )

    @property
    def steps(self) -> Iterable[rollout.Step]:
        """The steps that lead there; files of endpoints need no order."""
        if self.of_endpoints:
            return [rollout.Write(name, self.wanted[name]) for name in sorted(self.different)]
        return rollout.steps(self.present, self.wanted)


def write_files_early(
    plan: Plan, keys: Collection[ObjectKey], is_stopped: Callable[[], bool] = lambda: False
) -> frozenset[ObjectKey]:
    """Write the endpoints and routes of proxies of which nothing else is different; return whose, among `keys`.

    Once `is_stopped`, only what is begun is finished: an Envoy may take seconds to follow, and there may be many.
    """
    planned = (each for each in plan.proxies if each.root in keys and not each.routes)
    changes = [change for each in planned if (change := _change(each)) and change.different]
    of_routes = [change for change in changes if not change.of_endpoints and change.of_routes]
    some = [change for change in changes if change.of_endpoints]
    some += of_routes if _are_watchable(of_routes) else ()
    with ThreadPoolExecutor(_AT_ONCE) as crew:
        begun = crew.map(lambda change: not is_stopped() and _put(change), some)
        return frozenset(change.owner for change, is_begun in zip(some, begun, strict=True) if is_begun)


def _change(planned: PlannedProxy) -> _Change | None:
    """Return what there is to change in a proxy's directory; None where it isn't this proxy's, or can't be read."""
    with suppress(ClientError):
        directory = Proxies.ours().find(planned.proxy.id)
        if directory and directory.owner == planned.owner:
            mode = files.SHARED if planned.run.by_group else files.PRIVATE
            present = push.texts(directory.path)
            return _Change(planned.root, directory.path, mode, present, planned.rendered.files)
    return None


def _are_watchable(changes: Sequence[_Change]) -> bool:
    """Return whether this host lets Envoys watch all that is new to them: one that can't would abort."""
    watches = sum(rollout.more_watches(change.present, change.wanted) for change in changes)
    with suppress(ClientError):  # want of descriptors: the update asks for each proxy alone, and tells
        return watches <= _MOST_WATCHES and inotify.available(watches) >= watches
    return False


def _put(change: _Change) -> bool:
    """Write its files as far as that works; return that they may be others now."""
    with suppress(ClientError):  # the update tells why
        push.roll_out(change.directory, change.steps, change.mode)
    return True
