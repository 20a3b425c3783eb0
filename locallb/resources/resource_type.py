"""The interface of a resource type, and the provider's error: one sentence, which the engine shows unchanged.

Not here: Pulumi's protocol, which `provider.plugin` speaks for all resource types, and the types
(`provider.resource_types`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Generic, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import asdict

from locallb.model.errors import ClientError
from locallb.model.identities import Owner
from locallb.resources.codec import is_unknown
from locallb.storage import paths
from locallb.storage.proxy_directories import is_id


class ProviderError(Exception):
    """A resource can't be had: one sentence with the object, the value and the remedy."""


def sentence(error: BaseException | None) -> str | None:
    """Find the sentence that is meant for the user in an error or in what it was raised from; None for a defect."""
    while error is not None:
        if isinstance(error, ProviderError | ClientError):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


InputsT = TypeVar("InputsT", bound=Struct)
StateT = TypeVar("StateT", bound=Struct)


class InputChanges(Struct, frozen=True):
    """What new inputs change, which of that needs another resource, and in which order."""

    changed: frozenset[str] = frozenset()
    replacing: frozenset[str] = frozenset()
    delete_first: bool = False


class ResourceType(ABC, Generic[InputsT, StateT]):
    """One type of resource. Methods block; what goes wrong is a ProviderError or a ClientError."""

    inputs: type[InputsT]
    """Of the class' parameters, like `state`."""
    state: type[StateT]
    replaced_for: frozenset[str] = frozenset()
    """Inputs that can't change in place."""
    delete_first = False
    """Whether the old one goes before its replacement comes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for parameters in map(get_args, getattr(cls, "__orig_bases__", ())):
            if not any(isinstance(each, TypeVar) for each in parameters):
                cls.inputs, cls.state = parameters

    def __init__(self, root: Path | None) -> None:
        self.root = root

    def check(self, new: InputsT) -> Iterator[tuple[str, str]]:
        """Return which properties have values that can't be used, and why. Fields may be UNKNOWN."""
        del new
        yield from ()

    def diff(self, old: StateT, new: InputsT) -> InputChanges:
        """Compare the current state with the desired inputs. Fields may be UNKNOWN, which counts as a change."""
        return InputChanges(changed(old, new), self.replaced_for, self.delete_first)

    def shown(self, changed: frozenset[str]) -> frozenset[str]:
        """Return which of the changed inputs a preview shows: not what its load balancer shows in a user's words."""
        return changed

    def preview_outputs(self, new: InputsT, old: StateT | None) -> Mapping[str, object]:
        """Return the outputs that a create (`old` is None) or update is certain to give; the rest is UNKNOWN."""
        del new, old
        return {}

    @abstractmethod
    def create(self, new: InputsT) -> tuple[str, StateT]:
        """Make it, or adopt what has the same full identity; gives its id."""

    @abstractmethod
    def read(self, state: StateT) -> StateT | None:
        """Look what is there now; None if it is gone. Changes nothing."""

    def update(self, old: StateT, new: InputsT) -> StateT:
        """Change it in place: here by making it once more."""
        del old
        return self.create(new)[1]

    @abstractmethod
    def delete(self, state: StateT) -> None:
        """Remove it; gone is fine."""

    def one_pass(self) -> AbstractContextManager[None]:
        """Return a context in which all reads may share one snapshot: for reads of many resources."""
        return nullcontext()

    def prepare(self, new: InputsT) -> None:
        """Get ready for a creation, before what it replaces is deleted. Raises ProviderError where it can't succeed."""

    def leaves_nothing(self, state: StateT) -> bool:
        """Return whether nothing is left of an interrupted creation that only this resource would find again.

        `state` has the inputs; its outputs are blank.
        """
        return self.read(state) is None

    def refuse_copied(self, owner: Owner) -> None:
        """Raise ProviderError where a deletion would be of what another project still has: the state is a copy."""
        if self.belongs_to_copied_project(owner):
            raise ProviderError(copied(owner))

    def belongs_to_copied_project(self, owner: Owner) -> bool:
        """Return whether the state is a copy of another project's, which still exists and owns this: leave it alone."""
        root = owner.home.root
        return self.root is not None and bool(root) and paths.is_another_directory(root, str(self.root))


def copied(owner: Owner) -> str:
    """Return the sentence about a state that was copied from the project of `owner`, which still exists."""
    root, stack = owner.home.root, owner.home.stack
    return (
        f"it isn't deleted: it belongs to {owner.service} of stack {stack} of the project at {root}, which still"
        " exists; destroy it there, or if this project is a copy, forget its state:"
        f" `pulumi stack rm --force --preserve-config {stack}`"
    )


def changed(old: Struct, new: Struct) -> frozenset[str]:
    """Name the inputs that differ from the state."""
    return frozenset(name for name in new.__struct_fields__ if getattr(old, name) != getattr(new, name))


def proxy_faults(proxy: str) -> Iterator[tuple[str, str]]:
    """Check an input that is a proxy's id."""
    yield from id_faults("proxy", proxy)


def id_faults(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Check an input of twelve hex digits."""
    if not is_unknown(value) and not is_id(value):
        yield name, f"{value!r} isn't twelve hex digits"


def grown(kind: type[StateT], inputs: Struct, **outputs: object) -> StateT:
    """Make a state from inputs and outputs."""
    return kind(**{**asdict(inputs), **outputs})
