"""What a run of a command is to bring a stack to, as data."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from locallb.engine.deploy.events import Severity
from locallb.engine.state.values import Value
from locallb.model.desired import Group


class Declared(Struct, frozen=True):
    """What a stack is to have, in place of what a program would register."""

    groups: Collection[Group]
    outputs: Mapping[str, Value] = field(default_factory=dict)
    """The Stack's."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Those of the packages whose providers have one."""
    remarks: tuple[tuple[Severity, str], ...] = ()
    """Sentences for the user; an error among them doesn't keep the rest from being done."""
