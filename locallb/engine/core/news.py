"""The core's reports of its work, in its own thread: operations that begin and end, entries of the state, refusals."""

from typing import TypeAlias

from msgspec import Struct

from locallb.engine.core.events import Op
from locallb.engine.core.operations import Operation, OperationResult
from locallb.engine.state.errors import EngineError
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.values import PropertyChange


class Begun(Struct, frozen=True):
    """An operation begins."""

    operation: Operation


class Entered(Struct, frozen=True):
    """A resource is settled without an operation: as an entry of the state, kept, made, changed or dropped."""

    op: Op
    resource: ResourceState
    changes: tuple[PropertyChange, ...] = ()


class Adopted(Struct, frozen=True):
    """An operation that an earlier run broke off needs nothing any more."""

    remaining: Pending


class Refused(Struct, frozen=True):
    """It can't be decided what is to be done with a resource, or with what an earlier run `remaining` of it."""

    urn: str
    error: EngineError
    remaining: Pending | None = None


News: TypeAlias = Begun | OperationResult | Entered | Adopted | Refused
