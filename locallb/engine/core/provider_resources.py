"""Provider resources: those that the program declares, and the default ones that Pulumi adds for each package.

They are entries of the state like others, with a UUID as id; a resource refers to its provider by URN and id. Creating
one configures the provider object and nothing else.
"""

import re
from collections.abc import Mapping
from threading import RLock
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.core.declared import Goal, Scope
from locallb.engine.core.events import Op
from locallb.engine.core.reporting import Reporter
from locallb.engine.provider_handles import Difference, Handle
from locallb.engine.provider_registry import Providers
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import FullScopeNeeded, StepError
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.stack_state import Put
from locallb.engine.state.urns import (
    PROVIDER_PREFIX,
    is_default_provider,
    make_urn,
    package_of,
    provider_reference,
    split_reference,
    type_of,
)
from locallb.engine.state.values import UNKNOWN, Properties, Value, changes_between
from locallb.engine.store import Recorder

_INTERNAL = "__internal"


class ProviderResources(Struct):
    """The providers of one run. `config` is the stack's, whose keys `<package>:…` configure default providers."""

    project: str
    stack: str
    scope: Scope
    recorder: Recorder
    reporter: Reporter
    providers: Providers
    config: Mapping[str, str] = field(default_factory=dict)
    is_preview: bool = False
    _ready: dict[str, ResourceState] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def register(self, urn: str, goal: Goal) -> None:
        """Create or update a provider resource of the program, once."""
        with self._lock:
            if urn not in self._ready:
                self._bring(urn, goal, goal.inputs)

    def provider_for(self, urn: str, goal: Goal) -> tuple[str, Handle]:
        """Return a resource's provider: the reference for the state, and the provider to call."""
        if not goal.provider:
            state = self._default(package_of(goal.type), goal.version)
            return provider_reference(state.urn, state.id), self.providers.handle(state.urn)
        given, identity = split_reference(goal.provider)
        if given not in self._ready:
            raise StepError(f"{urn}: its provider {goal.provider} isn't declared by the program")
        return provider_reference(given, identity), self.providers.handle(given)

    def handle_of(self, resource: ResourceState) -> Handle:
        """Return the provider of a resource that the state has, configured as the state says."""
        with self._lock:
            return self._handle(self._entry(resource))

    def attach(self, resource: ResourceState) -> ResourceState:
        """Return a resource that isn't in the state with only such references as the state can hold.

        What it refers to may have been removed since by another engine; a default provider comes back as an entry.
        """
        with self._lock:
            provider = self._entry(resource)
            self._handle(provider)
            if provider.urn not in self.recorder.snapshot.live:
                self.recorder.apply(Put(provider))
        removed = resource.references - self.recorder.snapshot.live.keys()
        for urn in removed:
            resource = resource.without_reference(urn)
        parent = "" if resource.parent in removed else resource.parent
        return replace(resource, parent=parent, provider=provider_reference(provider.urn, provider.id))

    def _handle(self, provider: ResourceState) -> Handle:
        handle = self.providers.handle(provider.urn)
        if provider.urn not in self._ready:
            handle.configure(provider.urn, _configuration(provider.inputs))
        return handle

    def _entry(self, resource: ResourceState) -> ResourceState:
        """Find the entry of a resource's provider, or what it would be for a default one."""
        urn, identity = split_reference(resource.provider)
        entry = self._ready.get(urn) or self.recorder.snapshot.live.get(urn)
        if entry is None and not is_default_provider(urn):
            raise StepError(f"{resource.urn}: its provider {urn} isn't in the state any more")
        if entry is None:
            inputs = self._configured(package_of(type_of(urn)))
            entry = ResourceState(urn, type_of(urn), custom=True, id=identity, inputs=inputs, outputs=inputs)
        return entry

    def _configured(self, package: str) -> dict[str, Value]:
        prefix = f"{package}:"
        return {key[len(prefix) :]: value for key, value in self.config.items() if key.startswith(prefix)}

    def changed(self, old: ResourceState, new: ResourceState) -> bool:
        """Return whether a resource moves to another provider, so that it must be replaced."""
        before, after = split_reference(old.provider)[0], split_reference(new.provider)[0]
        return before != after and not (is_default_provider(before) and is_default_provider(after))

    def compare(self, old: ResourceState, new: ResourceState, provider: Handle) -> Difference:
        if self.changed(old, new):
            return Difference(changes=True, keys=("provider",), replaces=("provider",))
        difference = provider.diff(old, new.inputs)
        if difference.changes is None:
            return replace(difference, changes=bool(difference.replaces) or dict(old.inputs) != dict(new.inputs))
        return difference

    def forget(self, urn: str) -> None:
        """Let a provider of which the state has no entry any more come anew."""
        with self._lock:
            self._ready.pop(urn, None)

    def _default(self, package: str, version: str) -> ResourceState:
        name = f"default_{re.sub(r'[^0-9A-Za-z]', '_', version)}" if version else "default"
        urn = make_urn(self.stack, self.project, "", f"{PROVIDER_PREFIX}{package}", name)
        with self._lock:
            if urn in self._ready:
                return self._ready[urn]
            inputs = self._configured(package)
            if version:
                inputs |= {_INTERNAL: {}, "version": version}
            goal = Goal(type=f"{PROVIDER_PREFIX}{package}", name=name, custom=True, inputs=inputs)
            return self._bring(urn, goal, inputs)

    def _bring(self, urn: str, goal: Goal, given: Properties) -> ResourceState:
        handle = self.providers.handle(urn)
        old = self.recorder.snapshot.live.get(urn)
        inputs = handle.check_config(urn, old.inputs if old else {}, _configuration(given))
        if _INTERNAL in given:
            inputs = dict(sorted({**inputs, _INTERNAL: given[_INTERNAL]}.items()))
        new = ResourceState(
            urn=urn,
            type=goal.type,
            custom=True,
            inputs=inputs,
            outputs=_configuration(inputs),
            parent=goal.parent,
            dependencies=goal.dependencies,
            property_dependencies=goal.property_dependencies,
        )
        state = self._record(old, new, handle)
        handle.configure(urn, _configuration(inputs))
        self._ready[urn] = state
        return state

    def _record(self, old: ResourceState | None, new: ResourceState, handle: Handle) -> ResourceState:
        now = timestamp()
        if old is None:
            identity = UNKNOWN if self.is_preview else str(uuid4())
            new = replace(new, id=identity, created=now, modified=now)
            return self._enter(Op.CREATE, None, new)
        retained = replace(new, id=old.id, created=old.created, modified=old.modified, extras=old.extras)
        difference = handle.diff_config(old, _configuration(new.inputs))
        if not difference.changes and not difference.replaces and dict(old.inputs) == dict(new.inputs):
            return self._enter(Op.SAME, old, retained)
        if not self.scope.is_full:
            raise FullScopeNeeded(f"the provider {new.urn} changed, which concerns every resource; update everything")
        if difference.replaces:
            raise StepError(f"the provider {new.urn} would have to be replaced; destroy what uses it first")
        return self._enter(Op.UPDATE, old, replace(retained, modified=now))

    def _enter(self, op: Op, old: ResourceState | None, new: ResourceState) -> ResourceState:
        """Report a provider and have it in the state."""
        self.reporter.end(self.reporter.begin(op, new, changes_between(old.inputs if old else {}, new.inputs)))
        if old is not None and old.equals(new):
            return old
        self.recorder.apply(Put(new))
        return new


def _configuration(inputs: Properties) -> dict[str, Value]:
    """Leave out what Pulumi notes for itself."""
    return {key: value for key, value in inputs.items() if key != _INTERNAL}
