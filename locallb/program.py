"""The program of every project of ours: read what is to be served, plan, declare. For `pulumi up` and `locallb up`.

A project's `__main__.py` calls `serve`, with the arguments of the stack's configuration, or declares `LoadBalancers`
with arguments of its own; resources that depend on what is served may follow. Not here: who runs the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias, Unpack
from weakref import WeakKeyDictionary

import pulumi
from msgspec import Struct, field
from msgspec.structs import replace
from pulumi.output import UNKNOWN

from locallb.components.arguments import Arguments, configuration
from locallb.components.stack import declare, warn
from locallb.config.settings import Settings, SettingsError
from locallb.desired import Desired, Shown, desired, short_names, shown
from locallb.engine.monitor import Monitor, refuse_unfinished
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import state_file
from locallb.model.desired import BALANCER, COMPONENT, REACHABLE, ResourceKey
from locallb.model.errors import ClientError, of_host
from locallb.model.identities import Home, ObjectKey
from locallb.model.texts import few
from locallb.observe import ask_each
from locallb.planning.planned import Plan
from locallb.report.policies import planned_violations
from locallb.sources import SourceError, program_arguments
from locallb.sources.configuration import program_settings
from locallb.sources.held import read_resources
from locallb.sources.snapshot import ReadingAndPlan, SnapshotResult
from locallb.sources.stack_home import refuse_renamed, require_here, write
from locallb.sources.workspace import Workspace, updates_whole_stack
from locallb.storage.paths import project_root

Texts = Mapping[str, Sequence[str]]
Made: TypeAlias = Mapping[ResourceKey, pulumi.Resource]
_MAX_NAMES = 10


class _Declared(Struct, frozen=True):
    """A plan, and the resources that it became."""

    plan: Plan
    made: Made
    certain: bool = True
    """False in a preview that goes by the arguments of the last update."""

    def once_proven(self) -> pulumi.Output[Shown]:
        """Return what programs get once all that is served is proven; in a preview it is what is planned."""
        if not self.certain:
            unknown: pulumi.Output[Any] = pulumi.Output.from_input(UNKNOWN)
            return unknown
        served = shown(self.plan)
        if pulumi.runtime.is_dry_run():
            return pulumi.Output.from_input(served)
        proofs = [each for key, each in self.made.items() if key.type == REACHABLE]
        ids = [each.id for each in proofs if isinstance(each, pulumi.CustomResource)]
        return pulumi.Output.all(*ids).apply(lambda _: served)

    def service(self, name: str, otherwise: pulumi.Resource | None) -> pulumi.Resource:
        """Return a load balancer by its name; `otherwise` for one that is missing. Raises RunError."""
        keys = {str(each.key): each for each in self.plan.placements}
        keys |= dict(zip(short_names(self.plan), self.plan.placements, strict=True))
        if name in keys:
            return self.made[ResourceKey(BALANCER, str(keys[name].key))]
        if otherwise is not None:
            return otherwise
        served = f"served are {few(short_names(self.plan), _MAX_NAMES)}" if keys else "nothing is served"
        raise pulumi.RunError(f"there is no load balancer {name!r}: {served}")


class Services:
    """Load balancers by `namespace/name`, as resources on which others can depend."""

    def __init__(self, declared: pulumi.Output[_Declared], planned_by: pulumi.Resource | None) -> None:
        self._declared = declared
        self._planned_by = planned_by

    def __getitem__(self, name: str) -> pulumi.Output[pulumi.Resource]:
        """Return a load balancer, for `depends_on`: what depends on it comes once it is served.

        In a preview of a Service that the same program makes, that isn't known yet: whoever planned stands for it.
        """
        otherwise = self._planned_by if pulumi.runtime.is_dry_run() else None
        return self._declared.apply(lambda declared: declared.service(name, otherwise))


class LoadBalancers(pulumi.ComponentResource):
    """Serves the Services, Gateways and Ingresses of some clusters on this host.

    A program may have several, each with sources of its own: they don't take addresses from each other.

    Arguments are the keys of a stack's configuration, for programs in Python in its spelling. What serves are children
    of the stack, as `serve` has them: their URNs don't depend on who declares them, nor on this component's name.
    """

    addresses: pulumi.Output[Texts]
    """By `namespace/name`, once they are served; the same holds for the others."""
    urls: pulumi.Output[Texts]
    """Of ports that speak HTTP."""
    hostnames: pulumi.Output[Texts]
    """In the zones of `dns`."""
    ports: pulumi.Output[Texts]
    """As `80/TCP`."""
    services: Services
    """To depend on."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None, **arguments: Unpack[Arguments]) -> None:
        """Declare it. It is planned once the resources are there on which arguments and `opts` depend."""
        _require_engine()
        self._program = _program_of(f"LoadBalancers {name!r}")
        given: pulumi.Output[Any] = pulumi.Output.from_input(dict(arguments)).apply(configuration)
        super().__init__(COMPONENT, name, {"arguments": given}, opts)
        self._given = given
        self._opts = opts or pulumi.ResourceOptions()
        current: pulumi.Output[Any] = pulumi.Output.from_input(self._current())
        declared: pulumi.Output[_Declared] = pulumi.Output.all(self.urn, current).apply(
            lambda both: self._serve(*both[1])
        )
        self._before = self._program.independent
        if self._opts.depends_on is None and not _has_output(arguments):
            self._before = [*self._before]
            self._program.independent.append(asyncio.ensure_future(_ended(declared)))
        proven: pulumi.Output[Shown] = declared.apply(lambda each: each.once_proven())
        self.addresses = proven.apply(lambda each: each.addresses)
        self.urls = proven.apply(lambda each: each.urls)
        self.hostnames = proven.apply(lambda each: each.hostnames)
        self.ports = proven.apply(lambda each: each.ports)
        self.services = Services(declared, self)
        self.register_outputs(
            {"addresses": self.addresses, "urls": self.urls, "hostnames": self.hostnames, "ports": self.ports}
        )

    async def _current(self) -> object:
        """Return the arguments and whether they are certain, or UNKNOWN.

        In a preview one of them may not be known yet, such as that of a cluster which is replaced. What serves now
        isn't to be taken for deleted then: the arguments of the last update stand for them.
        """
        if await self._given.is_known():
            return await self._given.future(), True
        with _errors_in_one_sentence():
            stated = program_arguments.read(_home())
        last = stated and stated.of(self._name)
        if last is None:
            pulumi.log.warn("an argument isn't known before the update: what it will serve can't be shown", self)
            return UNKNOWN
        pulumi.log.info("an argument isn't known before the update: shown is what the last one's arguments serve", self)
        return last, False

    async def _serve(self, given: Mapping[str, object], certain: bool) -> _Declared:  # noqa: FBT001 - in an apply
        if await self._given.is_secret():
            raise pulumi.RunError("an argument is a secret, and what is served is in the state: give it as plain text")
        after = {*await self._given.resources(), *await _resources_of(self._opts.depends_on)}
        if self._before:
            await asyncio.wait(self._before)
        async with self._program.lock:
            settings, planned = await asyncio.to_thread(self._program.plan, self._name, given, _home())
            forbidden = _forbidden(settings, planned, self._program.served())
            wanted = desired(planned[1])
            if not forbidden:
                self._program.enter(self._name, given, planned, wanted)
            made = _declare(planned[1], forbidden, [*after - {self}], wanted)
        _report(*planned, certain=certain)
        return _Declared(planned[1], made, certain)


class _Components(Struct):
    """The components of a program, in the order in which they planned: one after the other, beside what others have."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    independent: list[asyncio.Future[None]] = field(default_factory=list)
    """Ends of the components that wait for no resource. They plan in the order of the program, and before the others:
    so a preview and its update choose the same addresses, whatever is answered first."""
    stated: dict[str, program_arguments.Configuration] = field(default_factory=dict)
    planned: dict[str, ReadingAndPlan] = field(default_factory=dict)
    _roots: dict[ResourceKey, str] = field(default_factory=dict)
    """What they declare, each with its component."""

    def plan(self, name: str, given: program_arguments.Configuration, home: Home) -> tuple[Settings, ReadingAndPlan]:
        """Plan one, to which the others leave what they don't have. Raises RunError."""
        if name in self.stated:
            raise pulumi.RunError(f"two LoadBalancers have the name {name!r}, also if under other parents: rename one")
        with _errors_in_one_sentence():
            settings, others = program_arguments.settings({name: given}, home), [*self.planned.values()]
            whole = program_arguments.settings({**self.stated, name: given}, home)
            keep = not pulumi.runtime.is_dry_run()
            planned = replace(_open_workspace(home, settings), others=others).read_anew(keep=keep)
            if others and _is_embedded():  # commands report of all of them
                replace(_open_workspace(home, whole), others=[*others, planned]).read_anew(keep=False)
        return settings, planned

    def served(self) -> set[ObjectKey]:
        """Return the load balancers that are planned."""
        return {placement.key for _, plan in self.planned.values() for placement in plan.placements}

    def enter(
        self, name: str, given: program_arguments.Configuration, planned: ReadingAndPlan, wanted: Desired
    ) -> None:
        """Note what one declares, and in an update write down what it was given. Raises RunError."""
        for group in wanted.groups:
            root = group.members[0].key
            if (earlier := self._roots.setdefault(root, name)) != name:
                raise pulumi.RunError(
                    f"LoadBalancers {name!r} and {earlier!r} both serve {root.name}: leave it to one of them"
                )
        with _errors_in_one_sentence():
            if not pulumi.runtime.is_dry_run():
                self._write({**self.stated, name: given}, planned[0].snapshot.home)
        self.stated[name], self.planned[name] = given, planned

    @staticmethod
    def _write(stated: Mapping[str, program_arguments.Configuration], home: Home) -> None:
        before = program_arguments.read(home) or program_arguments.Stated()
        earlier = {**before.former, **before.components}
        former = {name: given for name, given in earlier.items() if name and name not in stated}
        program_arguments.write(home, program_arguments.Stated(stated, former))


class Serving(tuple[SnapshotResult, Plan]):  # noqa: SLOT001 - it has more than its items
    """What was read, and the plan made of it; with the outputs of `LoadBalancers`."""

    addresses: pulumi.Output[Texts]
    urls: pulumi.Output[Texts]
    hostnames: pulumi.Output[Texts]
    ports: pulumi.Output[Texts]
    services: Services

    def __new__(cls, planned: ReadingAndPlan, made: Made) -> Self:
        self = super().__new__(cls, planned)
        declared = _Declared(planned[1], made)
        proven = declared.once_proven()
        self.addresses = proven.apply(lambda each: each.addresses)
        self.urls = proven.apply(lambda each: each.urls)
        self.hostnames = proven.apply(lambda each: each.hostnames)
        self.ports = proven.apply(lambda each: each.ports)
        self.services = Services(pulumi.Output.from_input(declared), None)
        return self


def serve() -> Serving:
    """Read the stack's Services, plan, and declare what serves them; return what was read, and the plan made of it.

    Raises:
        RunError: if nothing can be planned: one sentence.

    """
    _require_engine()
    _program_of(_SERVE)
    with _errors_in_one_sentence():
        home = _home()
        workspace = _open_workspace(home, program_settings(home))
        keep = not pulumi.runtime.is_dry_run()
        if keep:
            program_arguments.forget(home)
        reading, plan = workspace.read_and_plan(keep=keep)
    made = _declare(plan, _forbidden(workspace.settings, (reading, plan)))
    _report(reading, plan)
    return Serving((reading, plan), made)


_SERVE = "serve()"
_PROGRAMS: WeakKeyDictionary[pulumi.Resource, tuple[str, _Components]] = WeakKeyDictionary()
"""Who declared first what serves, and the components, by the stack of each program of this process."""


def _program_of(party: str) -> _Components:
    """Return the components of this program; `serve` is alone, as it has the whole configuration. Raises RunError."""
    stack = pulumi.runtime.get_root_resource()
    if stack is None:
        return _Components()
    first, components = _PROGRAMS.get(stack, ("", _Components()))
    if first and _SERVE in {first, party}:
        raise pulumi.RunError(
            f"{first} declares what is served already, so {party} can't: declare LoadBalancers, with sources each"
        )
    _PROGRAMS[stack] = first or party, components
    return components


def _has_output(value: object) -> bool:
    """Return whether a value of an argument is known only once resources are there."""
    if isinstance(value, Mapping):
        return any(map(_has_output, value.values()))
    return isinstance(value, pulumi.Output | Awaitable) or (
        isinstance(value, list | tuple) and any(map(_has_output, value))
    )


async def _ended(output: pulumi.Output[Any]) -> None:
    """Wait until it has a value or never will; what uses it reports an error."""
    with suppress(Exception):
        await output.future()


async def _resources_of(depends_on: Any) -> Iterable[pulumi.Resource]:  # noqa: ANN401 - as ResourceOptions has it
    """Return the resources that options name."""
    named = await pulumi.Output.from_input(depends_on).future()
    return named if isinstance(named, list | tuple) else (named,) if named is not None else ()


def _require_engine() -> None:
    """Exit where nobody would carry out what is declared."""
    if pulumi.runtime.settings.SETTINGS.monitor is None:
        raise SystemExit("error: this program needs an engine: run `locallb up` or `pulumi up`")


def _is_embedded() -> bool:
    """Return whether our own engine runs the program."""
    return isinstance(pulumi.runtime.settings.SETTINGS.monitor, Monitor)


@contextmanager
def _errors_in_one_sentence() -> Iterator[None]:
    """Raise what the user or this host can repair as RunError, of which an engine shows the sentence only."""
    try:
        yield
    except (ClientError, EngineError, SettingsError, SourceError) as error:
        raise pulumi.RunError(str(error)) from None
    except Exception as error:
        if of_host(error):
            raise pulumi.RunError(of_host(error)) from None
        raise


def _home() -> Home:
    """Return the stack's identity.

    Programs of the Automation API and component providers have no directory of a project: theirs is where they run, or
    the nearest project above.
    """
    here = Path(pulumi.get_root_directory() or project_root(Path.cwd()) or Path.cwd())
    return Home(pulumi.get_project(), pulumi.get_stack(), str(here.resolve()))


def _open_workspace(home: Home, settings: Settings) -> Workspace:
    """Check that the stack belongs to this directory, then open it."""
    root = Path(home.root)
    # Without a root directory the engine keeps the state where that directory doesn't say.
    state = state_file(root, home.stack) if pulumi.get_root_directory() else None
    refuse_unfinished(root, home.stack)
    refuse_renamed(home, state)
    check_home = require_here if pulumi.runtime.is_dry_run() else write
    check_home(home, state)
    return Workspace(home, settings, partial(read_resources, state) if state else tuple, observe=ask_each)


def _forbidden(settings: Settings, planned: ReadingAndPlan, others: Collection[ObjectKey] = ()) -> str:
    """Return what the stack's policies forbid, one sentence a line, and log what they advise against.

    `others` are planned apart. Previews of `locallb` say all of this in their report.
    """
    shown_by_report = pulumi.runtime.is_dry_run() and _is_embedded()
    if shown_by_report or not updates_whole_stack():
        return ""
    reading, plan = planned
    violated = planned_violations(reading.snapshot, plan, settings, others)
    for violation in violated:
        if violation.advisory:
            pulumi.log.warn(violation.message)
    return "\n".join(violation.message for violation in violated if not violation.advisory)


def _declare(
    plan: Plan, forbidden: str, after: Sequence[pulumi.Resource] | None = None, wanted: Desired | None = None
) -> Made:
    """Declare a plan, nothing if something of it is forbidden; a preview fails once it is shown. Raises RunError."""
    if forbidden and not pulumi.runtime.is_dry_run():
        raise pulumi.RunError(forbidden)
    made = declare(plan, wanted, after=after or (), exported=after is None)
    if forbidden:
        raise pulumi.RunError(forbidden)
    return made


def _report(reading: SnapshotResult, plan: Plan, *, certain: bool = True) -> None:
    """Log what the user should hear of what was read, and with the official CLI of ports that aren't served.

    Where arguments are those of the last update, a source that can't be read may be the one that is to come: no error.
    """
    warn(plan)
    for notice in reading.notices:
        pulumi.log.warn(notice)
    for complaint in reading.complaints:
        (pulumi.log.error if certain else pulumi.log.warn)(complaint)
    if not _is_embedded():  # which reports them in a table
        for problem in _problems(plan):
            pulumi.log.warn(problem)


def _problems(plan: Plan) -> Iterator[str]:
    """Return sentences about planned ports that aren't served."""
    for placement in plan.placements:
        problems = [placement.problem, *(port.problem for port in placement.ports)]
        yield from dict.fromkeys(str(problem) for problem in problems if problem)
