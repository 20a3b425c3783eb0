"""The context of one command: project and stack, engine, program, plan.

Engine and provider are loaded when they are asked for, the SDK where a program is run: what only looks starts without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from locallb.cli.failures import Refused
from locallb.cli.project import is_standard
from locallb.config.services import DEFAULT_POOL
from locallb.config.settings import LeaderElection, Policies, Settings, SettingsError, Sharing
from locallb.engine.sdk_parts import defer
from locallb.engine.state.errors import EngineError, LockHeld
from locallb.engine.state.project import Project, load_config, load_project, require_stack
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import package_of
from locallb.engine.store import Store
from locallb.model.desired import COMPONENT
from locallb.model.errors import ClientError
from locallb.model.identities import Home, ObjectKey
from locallb.model.parties import UNKNOWN, party_of, room_of
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan, run_types
from locallb.planning.service_rows import Observation
from locallb.runtimes.runtime import runtime
from locallb.runtimes.single_instance import only_one
from locallb.sources import SourceError, program_arguments
from locallb.sources.configuration import (
    all_services_lock,
    configuration_of,
    in_force,
    is_confirmable,
    stack_settings,
)
from locallb.sources.readings import ReadCache
from locallb.sources.snapshot import ReadingAndPlan
from locallb.sources.source import reached
from locallb.sources.stack_home import has_deployed, refuse_renamed, require_here
from locallb.sources.stack_home import write as write_home
from locallb.sources.workspace import Workspace
from locallb.storage.paths import sibling_of_stack, stack_directory

if TYPE_CHECKING:
    from pulumi.provider.experimental.provider import Provider

    from locallb.cli.program import Program
    from locallb.engine.core.events import Event
    from locallb.engine.engine import Engine
    from locallb.engine.provider_registry import ProviderSource
    from locallb.report.changes import Violation
    from locallb.sources.consents import ClusterEntry

UNPLANNED = (ClientError, EngineError, SettingsError, SourceError)
"""What keeps `plan` from planning: a configuration or a source that can't be read, perhaps just now."""
TIMEOUT = 30.0
"""Seconds to wait for an update that is under way, such as one of a `watch`."""
PAUSE = 0.1
"""Seconds between two tries meanwhile."""
_Result = TypeVar("_Result")
_PACKAGE = package_of(COMPONENT)
_TOGETHER = 64
"""Operations at a time where proxies are shared: there most wait for an Envoy that takes their changes as one."""


class Session(Struct, frozen=True, dict=True):
    """A project's stack, opened. Making one reads `Pulumi.yaml` only."""

    project: Project
    stack: str

    @classmethod
    def open(cls, directory: Path, stack: str) -> Session:
        """Open the project in `directory`.

        Raises:
            EngineError: if there is no project, or it can't be used here.

        """
        defer()
        return cls(load_project(directory.resolve()), stack)

    @property
    def home(self) -> Home:
        """The stack's identity on this host."""
        return Home(self.project.name, self.stack, str(self.project.root))

    @property
    def settings(self) -> Settings:
        """The stack's typed configuration: that of its file, or what its program said last by itself.

        Raises:
            EngineError: if there is no such stack.
            SettingsError: if its configuration can't be used.
            SourceError: if what the program said can't be read.

        """
        return self._configured if self._is_configured_by_file else self.load_settings()

    def load_settings(self) -> Settings:
        """Read the configuration as it is now, with what a running `watch` serves meanwhile. Raises as `settings`."""
        return in_force(self.written_settings(), self.home)

    def written_settings(self) -> Settings:
        """Read the configuration alone, as it is now. Raises as `settings`."""
        config = load_config(self.project, self.stack)
        if self._is_standard():
            return stack_settings(config, self.home)
        if (stated := program_arguments.read(self.home)) and (configured := self._stated(stated)):
            return configured
        own = configuration_of(dict(config.items() - set(self.project.config)))
        if not own and "sources" not in configuration_of(config):
            return Settings(sources=(), pools=(DEFAULT_POOL,))
        return stack_settings(config, self.home)

    def _stated(self, stated: program_arguments.Stated) -> Settings | None:
        """Return what the program said last, as far as the state has it; None once nothing of it is there any more.

        Other engines than ours may have removed it, and say so nowhere else.
        """
        resources = tuple(self._observed.peek().in_order())
        ours = any(package_of(resource.type) == _PACKAGE for resource in resources)
        if self._observed.read_stamp is not None and not ours:
            return None
        declared = [resource.name for resource in resources if resource.type == COMPONENT]
        return program_arguments.settings(stated.existing(declared, self.home), self.home)

    @cached_property
    def _observed(self) -> Store:
        """The stack's state for who asks for it often: it is parsed once it is another."""
        return self.store

    @contextmanager
    def serving_all(self, *, requested: bool) -> Iterator[None]:
        """Let Services of every type be served while this lasts, if `requested`; all commands know. Raises Refused."""
        if not requested:
            yield
            return
        if not self._is_configured_by_file:
            raise Refused(
                "--all-services is of projects with the standard program, and this one has arguments of its own:"
                " give it services={} (local-lb:services)"
            )
        with only_one(all_services_lock(self.home), f"watch --all-services of stack {self.stack}"):
            yield

    @cached_property
    def _configured(self) -> Settings:
        return self.load_settings()

    @cached_property
    def _is_configured_by_file(self) -> bool:
        return self._is_standard()

    def _is_standard(self) -> bool:
        """Return whether the program is the standard one, which has no arguments of its own."""
        return is_standard(self.project.main / "__main__.py")

    @property
    def configuration_file(self) -> Path:
        """The file that says what is served: the stack's, or the one with what its program said."""
        file = program_arguments.file_of(self.home)
        return self.project.stack_file(self.stack) if self._is_configured_by_file or not file.exists() else file

    @property
    def watch_lock(self) -> Path:
        """The file that a `watch` of this stack holds locked."""
        return sibling_of_stack(self.home, "watch")

    @property
    def published_file(self) -> Path:
        """The file in which a `watch` of this stack has the outside parties that don't answer, and failed updates."""
        return sibling_of_stack(self.home, "delays")

    def require_home(self, *, ending: bool = False) -> None:
        """Check that the stack belongs to this project, state home and user. Raises SourceError, ClientError.

        `ending`: a stack that was deployed under two project names may be destroyed under each.
        """
        state = self.project.state_file(self.stack)
        require_here(self.home, state)
        if not (ending and has_deployed(state)):
            refuse_renamed(self.home, state)

    def require_stack(self) -> None:
        """Check that there is such a stack: a configuration or a state. Raises ProjectError."""
        require_stack(self.project, self.stack)

    def settle(self) -> None:
        """Check the same, and write down that it belongs here. Raises SourceError, ClientError."""
        write_home(self.home, self.project.state_file(self.stack))

    def election(self) -> LeaderElection | None:
        """Return by which Lease processes agree on this stack; None as well where the configuration can't be read."""
        settings = self._readable_settings()
        return settings.leader_election if settings else None

    def resources(self) -> tuple[ResourceState, ...]:
        """Return the stack's resources as the state has them; empty without a state. Raises EngineError."""
        return tuple(self.store.peek().in_order())

    def resources_and_under_way(self) -> tuple[tuple[ResourceState, ...], tuple[ResourceState, ...]]:
        """Return the same, and resources as updates that were broken off would have made them: they may exist.

        Raises EngineError.
        """
        existing = self.store.peek()
        wanted = (operation.resource for operation in existing.pending.values() if operation.kind == "updating")
        under_way = (
            replace(resource, id=before.id) for resource in wanted if (before := existing.live.get(resource.urn))
        )
        return tuple(existing.in_order()), tuple(under_way)

    @property
    def store(self) -> Store:
        """Its state, and what is kept of it."""
        return Store(self.project.backend, self.project.name, self.stack)

    def once_free(self, attempt: Callable[[], _Result], timeout: float = TIMEOUT) -> _Result:
        """Return the result of `attempt` as soon as the stack's lock is free. Raises LockHeld if it stays held.

        A `watch` begins nothing more meanwhile.
        """
        deadline = time.monotonic() + timeout
        with ExitStack() as stack:
            is_waiting = False
            while True:
                try:
                    return attempt()
                except LockHeld:
                    if time.monotonic() > deadline:
                        raise
                    if not is_waiting:
                        stack.enter_context(self.store.waiting())
                        is_waiting = True
                    time.sleep(PAUSE)

    @contextmanager
    def alone(self, notice: Callable[[str], None], timeout: float = TIMEOUT) -> Iterator[None]:
        """Keep others from changing the stack, after an update in progress has ended. Raises LockHeld."""
        with ExitStack() as stack:
            self.once_free(lambda: stack.enter_context(self.store.alone(notice)), timeout)
            yield

    def engine(self, listen: Callable[[Event], None]) -> Engine:
        """Make the engine for this stack."""
        from locallb.engine.core.lanes import Parties, Shape  # noqa: PLC0415 - what only looks starts without it
        from locallb.engine.engine import PARALLEL, Engine  # noqa: PLC0415 - likewise
        from locallb.provider import make_types  # noqa: PLC0415 - likewise

        providers: dict[str, ProviderSource] = {
            "locallb": make_types(self.project.root),
            "docker": cache(self._docker_provider),
        }
        parallel = _TOGETHER if self._shares() else PARALLEL
        parties = Parties(_lane_of, lambda party: Shape(*room_of(party)))
        return Engine(self.project, self.stack, providers, on_event=listen, parallel=parallel, parties=parties)

    def _docker_provider(self) -> Provider:
        from locallb.provider.docker_container import make_docker_provider  # noqa: PLC0415 - loads a client of Docker

        return make_docker_provider(self.project.root, lambda: self.settings.container.pull)

    def sign_in(self) -> None:
        """Fetch the tokens that plugins of kubeconfigs give, before anything is locked that others may wait for."""
        settings = self._readable_settings()
        live = [source for source in settings.sources if source.live] if settings else []
        if live:
            from locallb.kubernetes.api.kubeconfig import sign_in  # noqa: PLC0415 - loads what reads YAML

            sign_in(reached(live, self.project.root).values())

    def clusters_by_current_context(self) -> tuple[list[ClusterEntry], bool]:
        """Return the sources with a kubeconfig's current context, and whether there are further sources."""
        settings = self._readable_settings()
        sources = [*settings.sources, *settings.finders] if settings else []
        requested = [source for source in sources if is_confirmable(source)]
        current = [cast("ClusterEntry", source) for source in requested if not getattr(source, "context", "named")]
        return current, len(current) < len(sources)

    def _shares(self) -> bool:
        """Return whether proxies are shared, as far as the configuration can be read."""
        settings = self._readable_settings()
        return settings is not None and settings.proxies.mode is Sharing.SHARED

    def _readable_settings(self) -> Settings | None:
        try:
            return self.settings
        except (EngineError, SettingsError, SourceError):
            return None

    def require_runtime(self, *, planned: bool) -> None:
        """Check what this stack's proxies run in before anything begins, or (`planned`) will run in.

        Raises:
            ClientError: if it isn't there.

        """
        existing = self.resources()
        terms = {run_types()[resource.type] for resource in existing if resource.type in run_types()}
        for word in sorted({*terms, self.settings.runtime} if planned else terms):
            runtime(word).require()

    def program(self, handed: ReadingAndPlan | None = None, is_current: Callable[[], bool] = lambda: True) -> Program:
        """Make the program of one update; it reads nothing where a plan is `handed` to it that `is_current` then."""
        from locallb.cli.program import Program  # noqa: PLC0415 - loads what is desired

        main = self.project.main / "__main__.py"
        return Program(main, self._plan_of_program, self.violations, handed, is_current)

    def violations(self, planned: ReadingAndPlan, settings: Settings | None = None) -> Sequence[Violation]:
        """Return what a plan of the whole stack violates of the policies in `settings`, by default the stack's."""
        settings = settings or self.settings
        if settings.policies == Policies():
            return ()
        from locallb.report.policies import planned_violations  # noqa: PLC0415 - few stacks have any

        reading, plan = planned
        return planned_violations(reading.snapshot, plan, settings)

    def _plan_of_program(self, keep: bool) -> ReadingAndPlan:  # noqa: FBT001 - the program's one question
        """Read and plan for an update of this stack, or for a preview, which writes nothing. Raises as `plan` does."""
        if keep:
            self.settle()
        else:
            self.require_home()
        return self.plan(keep=keep)

    def stamp(self) -> object:
        """Return a stamp that differs once the state has been written; None without a state."""
        return self.store.stamp()

    def plan(self, *, keep: bool = False, glance: bool = False) -> ReadingAndPlan:
        """Read and plan without the program, for commands that only look.

        `keep` as `Workspace.read_and_plan` has it, `glance` as `read_snapshot`.

        Raises:
            SourceError: if a source can't be read and has no copy.

        """
        workspace = Workspace(self.home, self.settings, self.resources, glance=glance, observe=_observe)
        return workspace.read_and_plan(keep=keep)

    def find_refusals(self, plan: Plan, keys: Iterable[ObjectKey]) -> bool:
        """Return whether Envoy refuses objects of these load balancers of `plan` that weren't known to be refused."""
        workspace = Workspace(self.home, self.settings, self.resources)
        workspace.read_and_plan(keep=False)
        return workspace.find_refusals(plan, keys)

    def forget_readings(self) -> None:
        """Remove the copies of the last readings: nothing is left that they could protect."""
        ReadCache(stack_directory(self.home)).forget()


def _lane_of(resource: ResourceState) -> str:
    """Return the party for which operations on a resource wait; one of a program's own types waits for itself."""
    party = party_of(resource)
    return resource.urn if party == UNKNOWN else party


def _observe(proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
    """Query proxies for what they serve, and whether that answers."""
    from locallb.observe import ask_each  # noqa: PLC0415 - few commands need it

    return ask_each(proxies)
