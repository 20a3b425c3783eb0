"""Plans a proxy as a process: only Envoy's version is planned."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from locallb.model.fields import object_of, text_of
from locallb.model.identities import ObjectKey
from locallb.model.naming import owner_from
from locallb.model.objects import EMPTY
from locallb.model.serving import Proxy
from locallb.model.state_resource import PROCESS
from locallb.planning.runs import RunInputs


class ProcessRun(Struct, frozen=True):
    """A process of this host; another version of Envoy is another one."""

    envoy: str = ""
    runtime: str = "process"
    fields: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    told: tuple[str, ...] = ()
    by_group: bool = False


class ProcessPlanner(Struct, frozen=True):
    """Plans processes."""

    token: str = PROCESS
    makes_containers: bool = False

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProcessRun]:
        """Take the version that is installed."""
        return proxy, ProcessRun(inputs.host.envoy)

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`."""
        owner = object_of(declared.get("owner"))
        try:
            return owner_from({name: text for name, text in owner.items() if isinstance(text, str)}).service
        except (KeyError, ValueError):
            return None

    def told(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Read the version."""
        return text_of(declared.get("version")), ()


PLANNER = ProcessPlanner()
