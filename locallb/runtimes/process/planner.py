"""Plans a proxy as a process: only Envoy's version is planned."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.model.desired import CONFIG, PROCESS, Ref, ResourceKey
from locallb.model.fields import object_of, text_of
from locallb.model.identities import ObjectKey, Owner, RunIdentity
from locallb.model.serving import Proxy
from locallb.model.texts import owner_fields, owner_from
from locallb.planning.planned import DesiredRun, RunInputs


class ProcessRun(Struct, frozen=True):
    """A process of this host; another version of Envoy is another one."""

    envoy: str = ""
    runtime: str = "process"
    container: str = ""
    reported: tuple[str, ...] = ()
    by_group: bool = False
    released: tuple[str, ...] = ()
    """As `serving.Proxy` has it."""


class ProcessPlanner(Struct, frozen=True):
    """Plans processes."""

    token: str = PROCESS
    makes_containers: bool = False

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, ProcessRun]:
        """Take the version that is installed."""
        return proxy, ProcessRun(inputs.host.envoy, released=proxy.released)

    def desired(self, run: ProcessRun, proxy: Proxy, owner: Owner) -> DesiredRun:
        """Return the process that serves what the proxy's directory has."""
        key, config = ResourceKey(PROCESS, proxy.name), ResourceKey(CONFIG, proxy.name)
        inputs = {
            "proxy": proxy.id,
            "owner": owner_fields(owner),
            "bootstrap": Ref(config, ("bootstrap",)),
            "version": run.envoy,
            **({"released": " ".join(run.released)} if run.released else {}),
        }
        return DesiredRun(key, inputs, Ref(key, ("pid", "started"), str(RunIdentity.of_process("{}", "{}"))))

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Read the property `owner`."""
        owner = object_of(declared.get("owner"))
        try:
            return owner_from({name: text for name, text in owner.items() if isinstance(text, str)}).service
        except (KeyError, ValueError):
            return None

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        return text_of(declared.get("version")), ()


PLANNER = ProcessPlanner()
