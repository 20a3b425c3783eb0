"""The state file: the official command line's format, version 3, read strictly and written as it writes it.

Reading gives a Snapshot and what stands around the resources, which is carried over. What can't be understood, or
breaks a rule that a state must keep (the official command line's, and a few on which that one only panics), is refused
in one sentence; nothing is guessed or repaired.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns

from msgspec import Struct, field

from locallb import safe_files
from locallb.engine.state.errors import StateBroken, StateUnusable, Unsupported, parsing_problem, unreadable
from locallb.engine.state.resource import Pending, ResourceState, compact, pending_from_json, resource_from_json
from locallb.engine.state.stack_state import StackState
from locallb.engine.state.urns import is_provider, is_urn, provider_reference
from locallb.engine.state.values import SIGNATURE, Value
from locallb.model.errors import refusal

FORMAT = 3
VERSION = "v3.272.0"
_RESOURCES = '"resources":['
_DECODER = json.JSONDecoder()
# Kinds of resource state that the engine would have to honour and doesn't.
_UNSUPPORTED_FIELDS = {"external": "a resource that was only read", "taint": "a tainted resource"}


class Checkpoint(Struct, frozen=True):
    """A state file's content: the resources, and what stands around them.

    `time` is the manifest's and identifies this writing; empty when there is no state yet.
    """

    stack: str
    time: str = ""
    resources: tuple[ResourceState, ...] = ()
    pending: tuple[Pending, ...] = ()
    around: Mapping[str, Value] = field(default_factory=dict)
    latest: Mapping[str, Value] = field(default_factory=dict)

    def snapshot(self) -> StackState:
        return StackState(self.resources, self.pending)


def timestamp() -> str:
    """Return the time as the state has it: UTC with nanoseconds, trailing zeros left out as Go does."""
    seconds, nanoseconds = divmod(time_ns(), 1_000_000_000)
    fraction = f".{nanoseconds:09d}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def parse_checkpoint(text: str, stack: str, path: Path) -> Checkpoint:
    """Read a state file's text; `stack` is the qualified name for an empty state, `path` is named in errors."""
    try:
        whole, texts = _parse(text)
        return _read(whole, texts, stack, path)
    except ValueError as error:
        raise StateUnusable(path, f"it is cut short or no JSON ({error})") from None
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateUnusable(path, f"it doesn't have the form of a state ({parsing_problem(error)})") from None


def read_checkpoint(path: Path, stack: str) -> Checkpoint:
    """Read a state file. Raises StateBroken, Unsupported."""
    try:
        text = safe_files.read(path, safe_files.STATE).decode()
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise StateUnusable(path, f"it is no text ({error.reason})") from None
    return parse_checkpoint(text, stack, path)


def check_state(path: Path) -> tuple[str, ...]:
    """Return a sentence for each rule that a state file breaks; none when it is sound or isn't there."""
    try:
        data = safe_files.read_if_present(path, safe_files.STATE)
        if data is None:
            return ()
        whole, _texts = _parse(data.decode())
        latest, resources, pending = _contents(whole, [])
    except OSError as error:
        return (f"{path} can't be read: {refusal(error)}",)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return (f"{path} can't be read as a state: {parsing_problem(error)}",)
    version = () if whole.get("version") == FORMAT else (f"the format version {whole.get('version')!r} isn't {FORMAT}",)
    return (*version, *check_latest(latest, resources, pending))


def _contents(
    whole: dict[str, Value], texts: list[str]
) -> tuple[dict[str, Value], tuple[ResourceState, ...], tuple[Pending, ...]]:
    latest = _as_object(_as_object(whole["checkpoint"]).get("latest") or {})
    raw = [_as_object(item) for item in _as_list(latest.get("resources"))]
    exact = texts if len(texts) == len(raw) else [""] * len(raw)
    resources = tuple(resource_from_json(item, text) for item, text in zip(raw, exact, strict=True))
    pending = tuple(pending_from_json(_as_object(item)) for item in _as_list(latest.get("pending_operations")))
    return latest, resources, pending


def _parse(text: str) -> tuple[dict[str, Value], list[str]]:
    """Parse, and keep each resource's exact text where the file is written as one line."""
    start = text.find(_RESOURCES)
    if start < 0 or not _is_place_of_resources(text[:start]):
        return _as_object(json.loads(text)), []
    values: list[Value] = []
    texts: list[str] = []
    position = start + len(_RESOURCES)
    while text[position : position + 1] == "{":
        value, end = _DECODER.raw_decode(text, position)
        values.append(value)
        texts.append(_without_room(text[position:end]))
        position = end + 1 if text[end : end + 1] == "," else end
    around = _as_object(json.loads(f"{text[:start]}{_RESOURCES}{text[position:]}"))
    _as_object(_as_object(around["checkpoint"])["latest"])["resources"] = values
    return around, texts


def _without_room(text: str) -> str:
    """Return a resource's text without the spaces before its last bracket, with which earlier versions padded it."""
    return f"{text[:-1].rstrip(' ')}}}" if text.endswith(" }") else text


def _is_place_of_resources(before: str) -> bool:
    """Return whether the resources stand here, and not a key of the same name somewhere else."""
    try:
        whole = json.loads(f"{before}{_RESOURCES}]}}}}}}")
        return bool(whole["checkpoint"]["latest"]["resources"] == [])
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _as_object(value: Value) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _as_list(value: Value) -> list[Value]:
    if not isinstance(value or [], list):
        raise TypeError(f"{value!r} is not a list")
    return value if isinstance(value, list) else []


def _read(whole: dict[str, Value], texts: list[str], stack: str, path: Path) -> Checkpoint:
    version = whole.get("version")
    if version != FORMAT:
        why = f"it has the format version {version!r}, this engine knows {FORMAT}"
        if isinstance(version, int) and version > FORMAT:
            raise StateBroken(f"{path} can't be used: {why}; use a newer local-lb or `pulumi up`")
        raise StateUnusable(path, why)
    checkpoint = _as_object(whole["checkpoint"])
    latest, resources, pending = _contents(whole, texts)
    _refuse(latest, resources, pending, path)
    manifest = _as_object(latest.get("manifest") or {})
    return Checkpoint(
        stack=str(checkpoint.get("stack") or stack),
        time=str(manifest.get("time") or ""),
        resources=resources,
        pending=pending,
        around={key: value for key, value in checkpoint.items() if key not in {"stack", "latest"}},
        latest={key: value for key, value in latest.items() if key not in _REWRITTEN},
    )


_REWRITTEN = frozenset(("manifest", "resources", "pending_operations"))
_SIGNATURE = SIGNATURE.encode()


def _refuse(
    latest: Mapping[str, Value], resources: tuple[ResourceState, ...], pending: tuple[Pending, ...], path: Path
) -> None:
    for complaint in check_latest(latest, resources, pending):
        raise StateUnusable(path, f"it breaks the rules of a state, {complaint}")
    for resource in resources:
        for name, what in _UNSUPPORTED_FIELDS.items():
            if resource.extras.get(name):
                raise Unsupported(f"{path}: {what} ({resource.urn})")
        if _SIGNATURE in resource.data:
            raise Unsupported(f"{path}: a secret, asset or reference in the state of {resource.urn}")


def check_latest(
    latest: Mapping[str, Value], resources: tuple[ResourceState, ...], pending: tuple[Pending, ...]
) -> Iterator[str]:
    """Complain about everything in a state that breaks a rule."""
    manifest = latest.get("manifest")
    if isinstance(manifest, dict):
        yield from check_manifest(manifest)
    yield from check_resources(resources)
    yield from check_pending(pending)


def magic_of(version: str) -> str:
    """Return the checksum that a manifest of this version must carry."""
    return hashlib.sha256(version.encode()).hexdigest()


def check_manifest(manifest: Mapping[str, Value]) -> Iterator[str]:
    """Report a manifest with a wrong checksum."""
    version, magic = manifest.get("version", ""), manifest.get("magic", "")
    wanted = magic_of(version) if isinstance(version, str) and version else ""
    if magic != wanted:
        yield f"the checksum (manifest.magic) doesn't fit the version {version!r}"


def check_resources(resources: Sequence[ResourceState]) -> Iterator[str]:
    """Complain, in order, about each resource that breaks a rule."""
    everywhere = {resource.urn for resource in resources}
    before: set[str] = set()
    providers: set[str] = set()
    for resource in resources:
        yield from _check_shape(resource)
        if is_provider(resource.type):
            providers.add(provider_reference(resource.urn, resource.id))
        elif resource.provider and resource.provider not in providers:
            yield f"{resource.urn}: its provider {resource.provider} is missing or comes later"
        for urn in sorted(resource.references - before):
            yield f"{resource.urn}: {urn} {'comes later' if urn in everywhere else 'is missing'}"
        if resource.urn in before and not resource.delete:
            yield f"{resource.urn}: listed twice"
        before.add(resource.urn)


def _check_shape(resource: ResourceState) -> Iterator[str]:
    if not is_urn(resource.urn):
        yield f"{resource.urn!r}: not a URN"
    if resource.custom and not resource.id:
        yield f"{resource.urn}: a custom resource without an id"
    if not resource.custom and resource.id:
        yield f"{resource.urn}: a component with the id {resource.id!r}"
    if resource.custom and not resource.provider and not is_provider(resource.type):
        yield f"{resource.urn}: a custom resource without a provider"


def check_pending(pending: Iterable[Pending]) -> Iterator[str]:
    """Complain about operations under way that can't be understood."""
    for operation in pending:
        if not is_urn(operation.resource.urn):
            yield f"{operation.resource.urn!r}: not a URN, in the pending operations"


def format_checkpoint(checkpoint: Checkpoint, snapshot: StackState, time: str) -> bytes:
    """Write a state file, one line, from the bytes that each resource keeps of itself."""
    manifest: dict[str, Value] = {"time": time, "magic": magic_of(VERSION), "version": VERSION}
    existing = dict(checkpoint.latest)
    head = f'{{"version":{FORMAT},"checkpoint":{{"stack":{compact(checkpoint.stack)},"latest":{{'
    head += f'"manifest":{compact(manifest)},'
    if "secrets_providers" in existing:
        head += f'"secrets_providers":{compact(existing.pop("secrets_providers"))},'
    tail = ""
    if snapshot.pending:
        operations = ",".join(operation.text for operation in snapshot.pending.values())
        tail += f'"pending_operations":[{operations}],'
    tail += f'"metadata":{compact(existing.pop("metadata", {}))}'
    tail += "".join(f",{compact(key)}:{compact(value)}" for key, value in existing.items())
    tail += "}" + "".join(f",{compact(key)}:{compact(value)}" for key, value in checkpoint.around.items()) + "}}"
    if not (listed := [resource.data for resource in snapshot.in_order()]):
        return f"{head}{tail}".encode()
    listed[0] = f"{head}{_RESOURCES}".encode() + listed[0]
    listed[-1] += f"],{tail}".encode()
    return b",".join(listed)  # all at once: a second copy of a large state costs more than all the rest
