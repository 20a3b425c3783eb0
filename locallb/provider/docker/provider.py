"""Pulumi's provider protocol for one type of resource, the container; `lifecycle` does what has an effect."""

from __future__ import annotations

from typing import Any

from pulumi.provider.experimental import provider as protocol

from locallb.model.identities import ContainerId
from locallb.provider.docker import inputs, rendering
from locallb.provider.docker.differences import compare
from locallb.provider.docker.lifecycle import Lifecycle
from locallb.resources.errors import ProviderError
from locallb.resources.values import UNKNOWN, Values
from locallb.resources.wire import plain, reported_difference, wrapped

TOKEN = "docker:index/container:Container"  # noqa: S105 - a resource type, no secret


class DockerProvider(protocol.Provider):
    """Containers of one daemon. Only the embedded engine has it, which asks from a thread for each call."""

    in_place = True

    def __init__(self, life: Lifecycle) -> None:
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
        failures = [protocol.CheckFailure(key, reason) for key, reason in inputs.faults(given)]
        return protocol.CheckResponse(inputs=wrapped(given if failures else inputs.checked(given)), failures=failures)

    async def diff(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        """Return what changes and whether it takes a new container, which then comes after the old one's end."""
        _refuse_others(request.type)
        change = compare(plain(request.old_state), plain(request.new_inputs), inputs.SUPPORTED)
        return reported_difference(request, change.changed, change.replacing, delete_first=True)

    async def create(self, request: protocol.CreateRequest) -> protocol.CreateResponse:
        """Create and start it, or adopt ours."""
        _refuse_others(request.type)
        new = plain(request.properties)
        if request.preview:
            return protocol.CreateResponse("", wrapped({**inputs.without_notes(new), "id": UNKNOWN}))
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
        changed = compare(old, new, inputs.SUPPORTED).changed
        if request.preview:
            return protocol.UpdateResponse(wrapped(rendering.updated(old, new, changed)))
        outputs = self._life.update(ContainerId(request.resource_id), old, new, changed)
        return protocol.UpdateResponse(wrapped(outputs))

    async def delete(self, request: protocol.DeleteRequest) -> None:
        """Remove it."""
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
    top = {key: inputs.without_notes(value) for key, value in declared.items() if key != inputs.NOTE}
    if inputs.NOTE in declared:
        top[inputs.NOTE] = declared[inputs.NOTE]
    if isinstance(declared.get("healthcheck"), dict):
        top["healthcheck"] = declared["healthcheck"]
    return {**top, **{key: observed.get(key) for key in drifted}}
