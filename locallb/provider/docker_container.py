"""`docker:index/container:Container` for the embedded engine: the official plugin's inputs, outputs and decisions.

So that either engine can go on where the other left off. Everything else of pulumi-docker is refused by name. The
Pulumi CLI runs the official plugin and never this.

A container's labels name its owner. A run may be killed between an effect and its line in the state, so `create` adopts
a container of the same owner and specification. The diff decides as the official plugin does whether another container
is needed; the recorded table of changes is its test. Not here: checked inputs and the request body (`docker_spec`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pulumi.provider.experimental import provider as protocol
from pulumi.provider.experimental.provider import Provider

from locallb.config.settings import PullPolicy
from locallb.model.identities import ContainerId
from locallb.provider import docker_spec
from locallb.provider.docker_spec import NOTE, without_notes
from locallb.resources.codec import UNKNOWN, Values
from locallb.resources.resource_type import ProviderError, copied
from locallb.resources.wire import plain, reported_difference, wrapped
from locallb.runtimes.docker.daemon import ContainersError, DockerAbsentError
from locallb.runtimes.docker.engine_api import (
    Containers,
    failed_to_start,
    labels_of,
    make_started,
    provide_image,
    require_owner,
)
from locallb.runtimes.docker.facts import drain_container, needs_restart
from locallb.runtimes.handover import STOP_TIMEOUT
from locallb.runtimes.planners import HELPER_LABEL, PROXY_LABEL, labelled_owner
from locallb.storage import paths

IN_PLACE = frozenset(
    {
        *("containerReadRefreshTimeoutMilliseconds", "cpuShares", "destroyGraceSeconds", "healthcheck", "init"),
        *("memory", "memorySwap", "mustRun", "removeVolumes", "restart", "start", "tmpfs", "wait", "waitTimeout"),
    }
)
"""All others take a new container."""
_DECIDED_BY_DAEMON = frozenset(
    {
        *("command", "domainname", "entrypoints", "envs", "hostname", "init", "ipcMode", "logDriver", "runtime"),
        *("labels", "platform", "securityOpts", "shmSize", "stopSignal", "stopTimeout", "user", "workingDir"),
    }
)
"""What the image or the daemon decides where the program doesn't say."""
_UNORDERED = frozenset({"labels", "envs", "securityOpts"})


class ContainerChange(Struct, frozen=True):
    """Names of properties."""

    changed: frozenset[str] = frozenset()
    replacing: frozenset[str] = frozenset()


def compare(outputs: Values, inputs: Values, existing: frozenset[str]) -> ContainerChange:
    """Compare the state's outputs with new inputs; `existing` are the properties that inputs may have."""
    keys = (existing | inputs.keys()) - {NOTE}
    changed = frozenset(key for key in keys if _differs(key, outputs.get(key), inputs.get(key)))
    return ContainerChange(changed, changed - IN_PLACE)


def _differs(key: str, old: Any, new: Any) -> bool:  # noqa: ANN401 - any JSON-like values
    if new is None:
        return key not in _DECIDED_BY_DAEMON and not _blank(old)
    if _blank(old) and _blank(new):
        return False
    return bool(_normal(key, old) != _normal(key, new))


def _blank(value: object) -> bool:
    """Return whether a value says nothing: absent, empty, zero or false."""
    return not value


def _normal(key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON-like value
    """Leave out what says nothing, and the order where it means nothing."""
    if key == "ports":
        return _sorted_ports(value or [])
    if key == "capabilities":
        return {name: sorted(items) for name, items in without_notes(value or {}).items() if items}
    if key in {"volumes", "networksAdvanced"}:
        return [_stated(item) for item in value or ()]
    if key == "healthcheck":
        return _stated(value or {})
    items = without_notes(value)
    if key in _UNORDERED and isinstance(items, list):
        return sorted(items, key=str)
    return items


def _sorted_ports(ports: list[Values]) -> list[Mapping[str, Any]]:
    """Order ports as the official plugin does: those of one container port stay in the order in which they come."""
    return sorted((_stated(port) for port in ports), key=lambda port: (port["internal"], port.get("protocol", "tcp")))


def _stated(item: Values) -> dict[str, Any]:
    return {key: value for key, value in without_notes(item).items() if value}


_GRACE = STOP_TIMEOUT
"""Seconds from SIGTERM to SIGKILL where nothing is left to wait for."""


class DockerLifecycle:
    """Containers of one daemon, for the project in `root`."""

    def __init__(
        self,
        containers: Containers,
        root: Path | None,
        pull: Callable[[], PullPolicy] = lambda: PullPolicy.IF_NOT_PRESENT,
    ) -> None:
        self._containers = containers
        self._root = root
        self._pull = pull

    def create(self, new: Values) -> tuple[ContainerId, dict[str, Any]]:
        """Make it and start it, or take the one that is just this; gives id and outputs."""
        container = self._containers.inspect(new["name"])
        if container is not None:
            if adopted := self._adopt(container, new):
                return adopted
            self._containers.remove(container["Id"], volumes=True)
        provide_image(self._containers, new["image"], new["name"], self._pull())
        networks = docker_spec.networks(new)
        identity = make_started(
            self._containers, new["name"], docker_spec.body(new), lambda made: self._containers.connect(made, networks)
        )
        return identity, docker_spec.made(new, self._inspected(identity))

    def prepare(self, new: Values) -> None:
        """Fetch the image, and have Docker take the same container once without its name, which never runs.

        Raises ProviderError, ContainersError.
        """
        provide_image(self._containers, new["image"], new["name"], self._pull())
        owner = {label["label"]: label["value"] for label in new.get("labels", ())}
        labels = {HELPER_LABEL: owner.pop(PROXY_LABEL, ""), **owner}
        trial = self._containers.create("", {**docker_spec.body(new), "Labels": labels})
        try:
            self._containers.connect(trial, docker_spec.networks(new))
        finally:
            self._containers.remove(trial, volumes=True)

    def is_absent(self, name: str) -> bool:
        """Return whether there is no container of this name."""
        return self._containers.inspect(name) is None

    def read(self, identity: ContainerId, before: Values, declared: Values) -> dict[str, Any] | None:
        """Read the container as it is; None if it is gone, or if Docker couldn't start it: `create` repairs that."""
        observed = self._containers.inspect(identity)
        if observed is None or observed["State"].get("Status") in {"removing", "dead"} or failed_to_start(observed):
            return None
        if needs_restart(observed):  # it lives and serves nothing: the next update starts it again
            observed = {**observed, "State": {**observed["State"], "Paused": True}}
        whole = before if docker_spec.is_complete(before) else docker_spec.made(docker_spec.checked(declared), observed)
        return docker_spec.refreshed(whole, observed)

    def update(self, identity: ContainerId, old: Values, new: Values, changed: frozenset[str]) -> dict[str, Any]:
        """Change limits and restart policy, and have it run."""
        if limits := self._limits(new, changed):
            self._containers.update(identity, limits)
        if new.get("mustRun"):
            self._have_run(identity)
        return docker_spec.updated(old, new, changed)

    def delete(self, identity: ContainerId, old: Values) -> None:
        """Stop and remove it; gone is fine. Raises ProviderError where it is a copied project's original."""
        observed = self._containers.inspect(identity)
        if observed is None:
            return
        self._refuse_copied(observed)
        drain_container(observed)
        grace = old.get("destroyGraceSeconds")
        if grace:
            self._containers.stop(identity, int(grace))
        self._containers.remove(identity, volumes=bool(old.get("removeVolumes", True)))

    def _adopt(self, container: Values, new: Values) -> tuple[ContainerId, dict[str, Any]] | None:
        """Take the container that has the name: None where it is ours and must be replaced.

        That is one with another specification, and one that Docker can't start.

        Raises ProviderError where it isn't ours.
        """
        ours = {label["label"]: label["value"] for label in new.get("labels", ())}
        require_owner(self._containers, new["name"], container, labelled_owner(ours))
        outputs = docker_spec.refreshed(docker_spec.made(new, container), container)
        difference = compare(outputs, new, docker_spec.SUPPORTED)
        if difference.replacing:
            return None
        before = docker_spec.made(new, container)
        try:
            return container["Id"], self.update(container["Id"], before, new, difference.changed)
        except DockerAbsentError:
            raise
        except (ContainersError, ProviderError):
            return None

    def _have_run(self, identity: ContainerId) -> None:
        observed = self._inspected(identity)
        state = observed["State"]
        if needs_restart(observed):
            self._containers.stop(identity, int(_GRACE))
            self._start(observed)
        elif state.get("Paused"):
            self._containers.unpause(identity)
        elif not state["Running"]:
            self._start(observed)

    def _start(self, observed: Values) -> None:
        """Start it. Where Docker refuses, the next `read` finds the container gone, and `create` makes another one."""
        try:
            self._containers.start(observed["Id"])
        except DockerAbsentError:
            raise
        except ContainersError as error:
            name = str(observed["Name"]).lstrip("/")
            raise ProviderError(
                f"the container {name} can't be started ({error}); run up again, which makes another one if it must"
            ) from error

    def _limits(self, new: Values, changed: frozenset[str]) -> dict[str, Any]:
        lifted = [key for key in ("memory", "memorySwap") if key in changed and key not in new]
        if lifted or (changed & {"memory", "memorySwap"} and "memorySwap" not in new):
            raise ProviderError("Docker can't lift a limit of memory in place: give memory and memorySwap")
        return docker_spec.limits(new, changed)

    def _inspected(self, identity: ContainerId) -> Values:
        observed = self._containers.inspect(identity)
        if observed is None:
            raise ProviderError(f"the container {identity[:12]} is gone already: run up again")
        return observed

    def _refuse_copied(self, observed: Values) -> None:
        owner = labelled_owner(labels_of(observed))
        if owner and self._root and paths.is_another_directory(owner.home.root, str(self._root)):
            raise ProviderError(copied(owner))


TOKEN = "docker:index/container:Container"  # noqa: S105 - a resource type, no secret


class DockerProvider(protocol.Provider):
    """Containers of one daemon. Only the embedded engine has it, which asks from a thread for each call."""

    in_place = True

    def __init__(self, life: DockerLifecycle) -> None:
        self._life = life

    async def configure(self, request: protocol.ConfigureRequest) -> protocol.ConfigureResponse:
        """Take the version; a provider with settings of its own is refused: the environment says where Docker is."""
        settings = sorted(request.args.keys() - {"version"})
        if settings:
            raise ProviderError(
                f"docker:{settings[0]} is not known to the embedded engine: set DOCKER_HOST, or use `pulumi up`"
            )
        return protocol.ConfigureResponse(supports_preview=True)

    async def check_config(self, request: protocol.CheckRequest) -> protocol.CheckResponse:
        """Take the configuration as it is; `configure` judges it."""
        return protocol.CheckResponse(inputs=request.new_inputs, failures=[])

    async def diff_config(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        """Never find anything: there are no settings."""
        del request
        return protocol.DiffResponse(
            changes=False, replaces=[], delete_before_replace=False, diffs=[], detailed_diff={}
        )

    async def check(self, request: protocol.CheckRequest) -> protocol.CheckResponse:
        """Fill in the official plugin's defaults, and refuse what isn't known here."""
        _refuse_others(request.type)
        given = plain(request.new_inputs)
        failures = [protocol.CheckFailure(key, reason) for key, reason in docker_spec.faults(given)]
        return protocol.CheckResponse(
            inputs=wrapped(given if failures else docker_spec.checked(given)), failures=failures
        )

    async def diff(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        """Return what changes and whether it takes a new container, which then comes after the old one's end."""
        _refuse_others(request.type)
        change = compare(plain(request.old_state), plain(request.new_inputs), docker_spec.SUPPORTED)
        return reported_difference(request, change.changed, change.replacing, delete_first=True)

    async def create(self, request: protocol.CreateRequest) -> protocol.CreateResponse:
        """Create and start it, or adopt ours."""
        _refuse_others(request.type)
        new = plain(request.properties)
        if request.preview:
            return protocol.CreateResponse("", wrapped({**docker_spec.without_notes(new), "id": UNKNOWN}))
        identity, outputs = self._life.create(new)
        return protocol.CreateResponse(identity, wrapped(outputs))

    def prepare(self, kind: str, inputs: Values) -> None:
        """Prove that Docker takes such a container, before the one that serves is removed for it."""
        _refuse_others(kind)
        self._life.prepare(inputs)

    def leaves_nothing(self, kind: str, inputs: Values) -> bool:
        """Return whether there is no container of this name."""
        _refuse_others(kind)
        return self._life.is_absent(str(inputs["name"]))

    async def read(self, request: protocol.ReadRequest) -> protocol.ReadResponse:
        """Read the container; an empty id means that it is gone."""
        _refuse_others(request.type)
        before, declared = plain(request.properties), plain(request.inputs)
        observed = self._life.read(ContainerId(request.resource_id), before, declared)
        if observed is None:
            return protocol.ReadResponse("", {}, {})
        return protocol.ReadResponse(request.resource_id, wrapped(observed), wrapped(_as_inputs(declared, observed)))

    async def update(self, request: protocol.UpdateRequest) -> protocol.UpdateResponse:
        """Change it in place, and start it where it should run and doesn't."""
        _refuse_others(request.type)
        old, new = plain(request.olds), plain(request.news)
        changed = compare(old, new, docker_spec.SUPPORTED).changed
        if request.preview:
            return protocol.UpdateResponse(wrapped(docker_spec.updated(old, new, changed)))
        outputs = self._life.update(ContainerId(request.resource_id), old, new, changed)
        return protocol.UpdateResponse(wrapped(outputs))

    async def delete(self, request: protocol.DeleteRequest) -> None:
        _refuse_others(request.type)
        old = plain(request.properties)
        self._life.delete(ContainerId(request.resource_id), old)


def _refuse_others(kind: str) -> None:
    """Refuse every type but the container."""
    token = kind.rpartition("$")[2]
    if token != TOKEN:
        raise ProviderError(f"{token} is not known to the embedded engine, only {TOKEN} is; use `pulumi up` for it")


def _as_inputs(declared: dict[str, Any], observed: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs that would make what was found: those declared, but for what is different."""
    drifted = compare(observed, declared, frozenset()).changed
    top = {key: docker_spec.without_notes(value) for key, value in declared.items() if key != docker_spec.NOTE}
    if docker_spec.NOTE in declared:
        top[docker_spec.NOTE] = declared[docker_spec.NOTE]
    if isinstance(declared.get("healthcheck"), dict):
        top["healthcheck"] = declared["healthcheck"]
    return {**top, **{key: observed.get(key) for key in drifted}}


def make_docker_provider(
    root: Path | None = None, pull: Callable[[], PullPolicy] = lambda: PullPolicy.IF_NOT_PRESENT
) -> Provider:
    """Make the provider for the daemon that the environment names.

    `root` is the directory of the deployed project: deletions leave alone containers of another project, if its state
    was copied here. `pull` is called when a container is made.
    """
    return DockerProvider(DockerLifecycle(Containers(), root, pull))
