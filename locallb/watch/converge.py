"""Converges a stack to its plan: finds the load balancers that differ, and updates them a few at a time.

What was applied is remembered by digest, after a start by what the state says. Equal digests don't prove that this
version of the program makes the same of a plan: an update finds out. Once this version has applied everything, the
state that it wrote is noted with the last readings; a loop with the same code and the same written state only reads the
resources, and declares those that differ.

Not here: when it runs (`watch.schedule`), the order of updates (`watch.updates`), and the plan (`planning`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec import field as field_msgspec
from msgspec.structs import replace

import locallb
from locallb.desired import exports, provider_version
from locallb.engine.core.declared import Scope, only
from locallb.engine.core.events import Result
from locallb.engine.core.lanes import DEADLINE, LateLane
from locallb.engine.core.updates import Updates
from locallb.engine.engine import Engine
from locallb.engine.state.urns import name_of, root_urn
from locallb.kubernetes.object_parsing import AnyStatus
from locallb.model.desired import ADDRESS_CLAIMS, BALANCER, CONFIG, GATEWAY_OBJECT, ROOTS, SERVICE_CONFIG
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.memory import AnyMemo
from locallb.model.texts import named_after
from locallb.outputs.output import outputs
from locallb.planning.planned import Plan, PlannedClass, PlannedNode, placements_of
from locallb.provider.fragments import gathering
from locallb.storage import files, paths
from locallb.storage.paths import stack_directory
from locallb.threads import Task, in_background
from locallb.watch.updates import (
    CHECKS,
    FEW,
    MAX,
    Batch,
    ClaimedProxies,
    Differences,
    Outcome,
    Wanted,
    Work,
    differing_work,
    together,
    touched_by,
)

NAME = "brought-about"
"""Of the note; sources' readings end with `.json`."""
MAX_UNVERIFIED = 50
"""Load balancers that a note names as not brought about; with more there is none."""
_PACKAGE = Path(locallb.__path__[0])


@dataclass(slots=True)
class Checks:
    """Load balancers that this loop hasn't verified yet, and those that need only a refresh. For one thread."""

    unchecked: set[ObjectKey] = field(default_factory=set)
    """Not looked at since the start."""
    _doubtful: set[ObjectKey] = field(default_factory=set)
    """Of which it isn't known that this code declared them as they are in the state."""
    _path: Path | None = None
    _noted: tuple[object, frozenset[ObjectKey]] | None = None
    _by: str = field(init=False)
    """Which code this is."""

    def __post_init__(self) -> None:
        """Ask now, when the process starts: files may be replaced under one that stands by."""
        self._by = _code()

    def begin(self, home: Home, keys: Iterable[ObjectKey], stamp: object) -> None:
        """Check all of these once; `stamp` identifies the written state that has them, None if it is unknown."""
        self._path, self.unchecked, self._noted = stack_directory(home) / NAME, set(keys), None
        doubtful = self._read(stamp)
        self._doubtful = set(self.unchecked) if doubtful is None else self.unchecked & doubtful

    def needs_check_only(self, keys: Collection[ObjectKey]) -> bool:
        """Return whether these were declared by this code as they are in the state, and are only to be looked at."""
        return self.unchecked.issuperset(keys) and self._doubtful.isdisjoint(keys)

    @property
    def check_only(self) -> bool:
        """Whether that holds of all that is unchecked."""
        return self._doubtful.isdisjoint(self.unchecked)

    def ended(self, keys: Collection[ObjectKey], failed: Collection[ObjectKey], stamp: object) -> None:
        """Note how an update of these, or a look at them, ended, and which writing of the state has that."""
        self.unchecked.difference_update(keys)
        self._doubtful.difference_update(keys)
        self._doubtful.update(failed)
        self._write(stamp)

    def _read(self, stamp: object) -> set[ObjectKey] | None:
        """Read which are doubtful in this writing of the state; None where all are."""
        with suppress(files.FilesError, ValueError, KeyError, TypeError, RecursionError):
            note = json.loads(files.read_shared(self._path) or "null") if self._path and stamp else {}
            if note and (note["code"], note["state"]) == (self._by, str(stamp)):
                return {ObjectKey.parse(str(name)) for name in note["doubtful"]}
        return None

    def _write(self, stamp: object) -> None:
        """Write the note where it changes. Without one more is declared than need be, so nothing depends on it."""
        now = stamp, frozenset(self._doubtful)
        if not self._path or not stamp or len(self._doubtful) > MAX_UNVERIFIED or now == self._noted:
            return
        note = {"code": self._by, "state": str(stamp), "doubtful": sorted(map(str, self._doubtful))}
        with suppress(files.FilesError):
            files.write(self._path, json.dumps(note) + "\n")
            self._noted = now


@cache
def _code() -> str:
    """Name all that decides what is declared of a plan, as it was when this process asked first."""
    digest = hashlib.sha256()
    for path in sorted((*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.json"))):
        digest.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


POLLED = frozenset({*ADDRESS_CLAIMS, CONFIG, SERVICE_CONFIG}).union(*(output.polled for output in outputs().values()))
"""Types of resources that are polled, because no event reports their change: files."""
STAMP_TIMEOUT = 0.1
"""Seconds that a pass over everything waits for outside parties to tell whether anything of theirs changed."""
SETTLING = 1.0
"""Seconds after an update in which a Service's status may still be read as it was before."""


_ADDRESSES = attrgetter("owner.service", "addresses")
"""What outputs show of a placement."""


class _Begun(Struct, frozen=True):
    """An update that hasn't ended."""

    digest: str
    """What is wanted of it; empty if it is to go."""
    at: float
    refresh: bool
    """Whether the world is looked at, as it is since nothing else is known to have happened to it."""


def _versions() -> Mapping[str, str]:
    """Return the versions of packages that have one, as resources of them are declared."""
    return {name: requested for name in ("docker",) if (requested := provider_version(name))}


class OutputStamps(Struct):
    """The stamps of outputs, which outside parties give: each is requested in a thread of its own. For one thread."""

    _requested: dict[str, Future[object]] = field_msgspec(default_factory=dict)
    _last: dict[str, object] = field_msgspec(default_factory=dict)

    def of(self, plan: Plan) -> tuple[object, ...]:
        """Return the stamps of all outputs; of one that takes longer than `STAMP_TIMEOUT` the last one that came."""
        for word, output in outputs().items():
            if word not in self._requested:
                self._requested[word] = in_background(Task.STAMP, f"stamp of {word}", partial(output.stamp, plan))
        wait(self._requested.values(), STAMP_TIMEOUT)
        for word in [word for word, ending in self._requested.items() if ending.done()]:
            self._last[word] = self._requested.pop(word).result()
        return tuple(map(self._last.get, outputs()))


class Converger(Struct):
    """Knows what was applied, and applies the rest."""

    home: Home
    engine: Engine
    begin: Callable[[Plan, Collection[ObjectKey]], None] = lambda _plan, _keys: None
    """Called with what an update is of, once the stack is this run's and before anything is looked at."""
    applied: dict[ObjectKey, str] = field_msgspec(default_factory=dict)
    """Applied digests; empty for failed load balancers with unknown state."""
    _touched: dict[ObjectKey, float] = field_msgspec(default_factory=dict)
    """When each was updated last, by the monotonic clock."""
    _differences: Differences = field_msgspec(default_factory=Differences)
    _reported: Mapping[str, object] = field_msgspec(default_factory=dict)
    """The stack's outputs."""
    _exported: object = None
    """The addresses that just these show, if that is known."""
    _addresses: AnyMemo = field_msgspec(default_factory=AnyMemo)
    _claimed: ClaimedProxies = field_msgspec(default_factory=ClaimedProxies)
    _wanted: Wanted = field_msgspec(default_factory=Wanted)
    _in_order: tuple[object, ...] | None = None
    """State and files that agreed when they were compared last."""
    _stamps: OutputStamps = field_msgspec(default_factory=OutputStamps)
    _checks: Checks = field_msgspec(default_factory=Checks)
    _readings: int = 0
    """How often the state had been read when it was learned."""
    bell: Callable[[], None] = lambda: None
    """Called from other threads when something of what is under way has ended."""
    _made: Updates | None = None
    _begun: dict[ObjectKey, _Begun] = field_msgspec(default_factory=dict)
    """What is under way."""

    def learn(self) -> None:
        """Take over what the state says; each load balancer is checked once, those first that differ all the same."""
        self.applied, self._reported, self._exported = {}, {}, None
        for resource in (resources := self.engine.resources()):
            if resource.type in ROOTS:
                key = ObjectKey.parse(resource.name)
                applies_to = resource.type in {BALANCER, GATEWAY_OBJECT} or not key.cluster
                # Earlier versions have it among the inputs.
                stated = resource.outputs.get("digest") or resource.inputs.get("digest") or ""
                digest = str(stated) if applies_to else ""
                self.applied[key] = digest or self.applied.get(key, "")
        self._claimed.learn(resources, self.applied)
        # What a run left half done may still have what others are to get.
        self.applied |= dict.fromkeys(self._keys_of(self.engine.unfinished()), "")
        self._readings = self.engine.readings
        self._checks.begin(self.home, self.applied, self.engine.read_stamp())

    @property
    def is_overtaken(self) -> bool:
        """Whether another process wrote the state since it was learned, perhaps between two updates of ours."""
        return self.engine.readings != self._readings

    def _stamp(self) -> object:
        """Return which writing of the state is this code's work; None once another process has written it."""
        return None if self.is_overtaken else self.engine.read_stamp()

    def wanted(self, plan: Plan) -> Mapping[ObjectKey, str]:
        """Return the digest of each load balancer of the plan, and of each rejected Service with a status.

        Proxies of the stack come first: load balancers need them.
        """
        self._claimed.plan(plan)
        return self._wanted.of(plan).digests

    def differing(
        self, stated: Mapping[ObjectKey, AnyStatus], plan: Plan, stale: Collection[ClusterName], now: float
    ) -> tuple[Mapping[ObjectKey, tuple[str, ...]], float | None]:
        """Name what others changed of ours in objects of live clusters, where that is known: not of stale ones.

        Just after an update it may be old news: then returns when to look again.
        """
        wanted = self.wanted(plan)
        differing: dict[ObjectKey, tuple[str, ...]] = {}
        later: float | None = None
        written: tuple[PlannedClass | PlannedNode, ...] = (*plan.classes, *plan.nodes)
        of_clusters = ((each.key, each.differing) for each in written if each.differing and each.cluster not in stale)
        for key, names in chain(self._differences.of(plan, stated), of_clusters):
            if self.applied.get(key) != wanted.get(key) or key.cluster in stale:
                continue
            if (settled := self._touched.get(key, 0.0) + SETTLING) > now:
                later = min(settled, later or settled)
            else:
                differing[key] = tuple(dict.fromkeys((*differing.get(key, ()), *names)))
        return differing, later

    def drifted(self, plan: Plan) -> set[ObjectKey]:
        """Find load balancers and proxies of which others changed or removed something. Raises EngineError.

        What is under way differs by our own doing.
        """
        reported = self._stamps.of(plan)
        observed = self.engine.state_stamp(), *map(files.stamps, (paths.proxies_root(), *paths.ledgers())), *reported
        if observed == self._in_order:
            return set()
        late = frozenset(lane.lane for lane in self.late_lanes())
        roots = self.engine.drifted(POLLED, longest=DEADLINE, without=late)
        self._in_order = None if roots or late else observed
        return self._keys_of(roots) - self._begun.keys()

    def _keys_of(self, roots: Collection[str]) -> set[ObjectKey]:
        names = self._claimed.names(self.applied)
        return {key for root in roots if (key := named_after(name_of(root), names))}

    def work(self, wanted: Mapping[ObjectKey, str], broken: Collection[ObjectKey]) -> Work:
        """Return what isn't as planned. `broken` are those known to need repair although nothing was planned again."""
        checks = self._checks
        self._claimed.leave(self.applied, checks.unchecked)
        unchecked = (key for key in checks.unchecked if wanted.get(key) == self.applied[key])
        present = {key for key in broken if key in wanted and (key in self.applied or self._claimed.of(key))}
        return differing_work(
            wanted,
            self.applied,
            tuple(sorted(present)),
            spare=self._wanted.spare,
            reported=self._wanted.status_only,
            unchecked=together(unchecked, self._wanted.proxies),
            few=CHECKS if checks.check_only else FEW,
        )

    def update(
        self,
        plan: Plan,
        wanted: Mapping[ObjectKey, str],
        batch: Batch,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Bring some load balancers to what is planned, and return what has ended of that, or of earlier updates.

        What takes longer than `is_enough` stays under way. Raises EngineError if it can't begin, or keep its outcome.
        """
        self._updates().give_way()
        requested, in_order, began = frozenset(batch.keys), frozenset[ObjectKey](), time.monotonic()
        retry = self._claimed.released_spares(requested, wanted)
        refresh = batch.refresh or bool(retry)
        if refresh and not retry and self._needs_check_only(requested, wanted):
            in_order = self._in_order_among(requested)
            self._checks.ended(in_order, (), self._stamp())
            if in_order == requested:
                return Outcome(Result(ok=True), {}, requested, requested, began)
            requested -= in_order
        keys = requested | retry
        outputs = self._changed_outputs(plan)
        with self._followed():
            self._updates().begin(
                self._wanted.of(plan).by_root,
                {key: self._roots(key) for key in keys},
                inspect=refresh,
                outputs=outputs,
                first=partial(self.begin, plan, keys),
            )
            self._note_begun(keys, wanted, refresh=refresh)
            with self._gathering(plan, keys):
                self._updates().wait(keys, is_enough)
        self._note_outputs(plan, outputs)
        outcome = self._outcome()
        return replace(
            outcome,
            ended=outcome.ended | in_order,
            untouched=outcome.untouched | in_order,
            since=outcome.since or began,
        )

    def wait(self, is_enough: Callable[[], bool]) -> Outcome:
        """Return what ends of what is under way until it is enough. Raises as `update` does."""
        with self._followed():
            self._updates().wait(self._begun.keys(), is_enough)
        return self._outcome()

    def go_on(self) -> Outcome:
        """Go on with what is under way, without waiting; return what has ended of it. Raises as `update` does."""
        with self._followed():
            self._updates().go_on()
        return self._outcome()

    @contextmanager
    def _followed(self) -> Iterator[None]:
        """Forget what is under way where that can't be kept: the state tells, or its journal."""
        try:
            yield
        except BaseException:
            self._begun.clear()
            raise

    @property
    def has_ended(self) -> bool:
        """Whether something has ended that wasn't returned."""
        return self._made is not None and self._made.has_ended

    @property
    def going_on(self) -> Collection[ObjectKey]:
        return self._begun.keys()

    @property
    def has_work(self) -> bool:
        """Whether anything is under way, or the state file is to be written."""
        return bool(self._begun) or (self._made is not None and self._made.is_open)

    def is_full(self, now: float) -> bool:
        """Return whether as much was begun a moment ago as is to be under way at a time."""
        return sum(each.at > now - DEADLINE for each in self._begun.values()) >= MAX

    def _outcome(self) -> Outcome:
        """Take over what has ended."""
        ended = self._updates().take()
        keys = frozenset(key for key in ended.parts if isinstance(key, ObjectKey))
        failed = {key: why for key, why in ended.failed.items() if isinstance(key, ObjectKey)}
        names = self._claimed.names(keys)
        begun = {key: self._begun.pop(key) for key in keys}
        # Of an update that broke off nobody knows what it came to.
        self._checks.ended(keys, failed if ended.result.is_whole else keys, self._stamp())
        self._note_applied(keys, failed, {key: each.digest for key, each in begun.items()})
        since = min((each.at for each in begun.values()), default=0.0)
        return Outcome(ended.result, failed, keys - failed.keys() - touched_by(ended.result, names), keys, since)

    def _updates(self) -> Updates:
        if self._made is None:
            self._made = self.engine.updates(_versions(), self.bell)
        return self._made

    def _note_begun(self, keys: Collection[ObjectKey], wanted: Mapping[ObjectKey, str], *, refresh: bool) -> None:
        """Note what these, and all that is under way, are being brought to."""
        self._begun = {key: replace(each, digest=wanted.get(key, "")) for key, each in self._begun.items()}
        for key in keys:
            self._begun[key] = _Begun(wanted.get(key, ""), time.monotonic(), refresh)
            if key in self.applied:
                self.applied[key] = ""

    def under_way(self, wanted: Mapping[ObjectKey, str], broken: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        """Return what is being brought to what is wanted, after a look where it is broken."""
        return frozenset(
            key
            for key, each in self._begun.items()
            if each.digest == wanted.get(key, "") and (each.refresh or key not in broken)
        )

    def exited(self, keys: Collection[ObjectKey]) -> None:
        """Note that what serves these ended: what is under way doesn't know."""
        for key in self._begun.keys() & keys:
            self._begun[key] = replace(self._begun[key], refresh=False)

    @property
    def next_time(self) -> float | None:
        """When to go on with what is under way, by the monotonic clock; None if nothing is."""
        return self._made.next_time if self._made else None

    def late_lanes(self) -> Mapping[LateLane, Collection[ObjectKey]]:
        """Return the lanes whose party doesn't answer, or slowly, each with the load balancers that wait there."""
        late = self._made.late_lanes() if self._made else {}
        return {lane: [key for key in parts if isinstance(key, ObjectKey)] for lane, parts in late.items()}

    def wake(self) -> None:
        """Let an update that waits ask whether it is enough; from any thread."""
        if self._made:
            self._made.wake()

    def stop(self) -> Outcome:
        """Let what runs end; return what came of it. Raises EngineError."""
        if self._made is None:
            return Outcome(Result(ok=True))
        with self._followed():
            self._made.close()
        return self._outcome()

    def _note_outputs(self, plan: Plan, outputs: Mapping[str, object]) -> None:
        """Note what the stack exports now; the plan only where an update took over all of it."""
        self._reported = self._updates().outputs
        exported = all(self._reported.get(name) == value for name, value in outputs.items())
        self._exported = self._addresses_in(plan) if exported else None

    def _note_applied(
        self, keys: Collection[ObjectKey], failed: Collection[ObjectKey], wanted: Mapping[ObjectKey, str]
    ) -> None:
        """Note which of these are as wanted now, and when they were updated."""
        ended = time.monotonic()
        for key in keys:
            self._touched[key] = ended
            self._claimed.updated(key, failed=key in failed)
            if key in failed:
                self.applied[key] = ""
            elif wanted[key]:
                self.applied[key] = wanted[key]
            else:
                self.applied.pop(key, None)
                self._touched.pop(key, None)

    def _gathering(self, plan: Plan, keys: Collection[ObjectKey]) -> AbstractContextManager[None]:
        """Have what is new for shared proxies wait for each other."""
        new = [placement for placement in placements_of(plan, keys) if placement.key not in self.applied]
        shared = [(placement.part.part.proxy, len(placement.addresses)) for placement in new if placement.part]
        return gathering((proxy for proxy, _ in shared), sum(addresses for _, addresses in shared))

    def _needs_check_only(self, requested: Collection[ObjectKey], wanted: Mapping[ObjectKey, str]) -> bool:
        """Return whether a look is enough: by the state all are as wanted, and this code declared them so."""
        same = all(self.applied.get(key) == wanted.get(key) for key in requested)
        return same and self._checks.needs_check_only(requested)

    def _in_order_among(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        """Check these and return the ones without drift: an update of many for one that drifted takes long.

        It doesn't wait for a party that hangs: an update leaves it running.
        """
        drifted = self.engine.drifted(scope=self._scope(keys), longest=DEADLINE)
        return frozenset(key for key in keys if not drifted or drifted.isdisjoint(self._roots(key)))

    def _changed_outputs(self, plan: Plan) -> Mapping[str, object]:
        """Return the outputs to export, only what changed: a thousand Services' outputs cost more than one update."""
        if self._exported == self._addresses_in(plan):
            return {}
        return {name: value for name, value in exports(plan).items() if self._reported.get(name) != value}

    def _addresses_in(self, plan: Plan) -> tuple[object, ...]:
        """Return all that outputs are made from: the identical object while none of it changes."""
        return self._addresses.each(_ADDRESSES, plan.placements)

    def _scope(self, keys: Collection[ObjectKey]) -> Scope:
        return only(urn for key in keys for urn in self._roots(key))

    def _roots(self, key: ObjectKey) -> frozenset[str]:
        """Return the URNs that the components of a key may have."""
        names = (str(name) for name in (key, *self._claimed.of(key)))
        return frozenset(root_urn(self.home.project, self.home.stack, kind, name) for name in names for kind in ROOTS)
