"""One resource as the state file holds it, and an operation that was under way when a run ended.

Frozen; its JSON is made once and kept as bytes, so that writing a state costs what changed and not what it holds.
Fields that this engine doesn't use itself (`protect`, `sourcePosition`, …) are carried along in `extras`.
"""

import json
from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.state.urns import name_of, split_reference
from locallb.engine.state.values import Properties, Value

# The official command line writes a resource's fields in this order.
FIELD_ORDER = (
    "urn", "custom", "delete", "id", "type", "inputs", "outputs", "parent", "protect", "taint", "external",
    "dependencies", "initErrors", "provider", "propertyDependencies", "pendingReplacement", "additionalSecretOutputs",
    "aliases", "customTimeouts", "importID", "retainOnDelete", "deletedWith", "created", "modified", "sourcePosition",
    "stackTrace", "ignoreChanges", "hideDiff", "replaceOnChanges",
)  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(FIELD_ORDER)}
_OWN = frozenset((
    "urn", "custom", "delete", "id", "type", "inputs", "outputs", "parent", "dependencies", "provider",
    "propertyDependencies", "pendingReplacement", "created", "modified",
))  # fmt: skip
# What a registration doesn't set again, and so keeps.
PRESERVED_EXTRAS = ("sourcePosition", "stackTrace")

PropertyDependencies = Mapping[str, tuple[str, ...]]


def compact(value: object) -> str:
    """Write JSON as the state file has it: one line, no spaces, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class ResourceState(Struct, frozen=True, dict=True):
    """A resource of the state.

    `delete` marks an old instance that a replacement left to be deleted; `pending_replacement` one that is already
    deleted and has to be created again. `property_dependencies` is None where the state has none. `created` and
    `modified` are the times of the last creation and change, in the state's own notation.
    """

    urn: str
    type: str
    custom: bool
    id: str = ""
    inputs: Properties = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    parent: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: PropertyDependencies | None = None
    provider: str = ""
    created: str = ""
    modified: str = ""
    delete: bool = False
    pending_replacement: bool = False
    extras: Mapping[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.urn)

    @cached_property
    def references(self) -> frozenset[str]:
        """The URNs of everything that must precede this resource: parent, dependencies, provider."""
        urns_named = {*self.dependencies}
        for urns in (self.property_dependencies or {}).values():
            urns_named.update(urns)
        urns_named.add(self.parent)
        if self.provider:
            urns_named.add(split_reference(self.provider)[0])
        for extra in ("deletedWith",):
            other = self.extras.get(extra)
            if isinstance(other, str):
                urns_named.add(other)
        urns_named.discard("")
        return frozenset(urns_named)

    @cached_property
    def data(self) -> bytes:
        """The resource as one line of JSON, encoded as it is written."""
        return compact(self.as_json()).encode()

    @property
    def text(self) -> str:
        """The resource as one line of JSON."""
        return self.data.decode()

    def as_json(self) -> dict[str, Value]:
        """Return the resource as the state file has it, empty fields left out."""
        own: dict[str, Value] = {
            "urn": self.urn,
            "custom": self.custom,
            "delete": self.delete,
            "id": self.id,
            "type": self.type,
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "parent": self.parent,
            "dependencies": list(self.dependencies),
            "provider": self.provider,
            "propertyDependencies": {key: list(urns) for key, urns in (self.property_dependencies or {}).items()},
            "pendingReplacement": self.pending_replacement,
            "created": self.created,
            "modified": self.modified,
        }
        filled = {key: value for key, value in own.items() if value or key == "custom"} | dict(self.extras)
        return {key: filled[key] for key in sorted(filled, key=lambda key: _RANK.get(key, len(_RANK)))}

    def equals(self, other: "ResourceState") -> bool:
        """Compare, the order of dependencies aside: the SDK sends them as sets."""
        return self is other or (
            _plain(self) == _plain(other)
            and frozenset(self.dependencies) == frozenset(other.dependencies)
            and _unordered(self) == _unordered(other)
        )

    def without_reference(self, urn: str) -> "ResourceState":
        """Forget a dependency that is gone."""
        retained = {key: tuple(u for u in urns if u != urn) for key, urns in (self.property_dependencies or {}).items()}
        return replace(
            self,
            dependencies=tuple(u for u in self.dependencies if u != urn),
            property_dependencies={key: urns for key, urns in retained.items() if urns},
        )


def _plain(state: ResourceState) -> tuple[object, ...]:
    """Return everything that has no order of its own, as `as_json` would tell it apart."""
    terms = (state.urn, state.custom, state.id, state.type, state.parent, state.provider, state.created, state.modified)
    return (*terms, state.delete, state.pending_replacement, state.inputs, state.outputs, state.extras)


def _unordered(state: ResourceState) -> dict[str, frozenset[str]]:
    return {key: frozenset(urns) for key, urns in (state.property_dependencies or {}).items()}


def resource_from_json(raw: dict[str, Value], text: str = "") -> ResourceState:
    """Read a resource of a state file; `text` is its exact JSON, if known, and is written back unchanged from one line.

    Raises KeyError, TypeError or AttributeError when the shape is wrong.
    """
    state = ResourceState(
        urn=_text(raw["urn"]),
        type=_text(raw["type"]),
        custom=bool(raw.get("custom", False)),
        id=_text(raw.get("id") or ""),
        inputs=_object(raw.get("inputs")),
        outputs=_object(raw.get("outputs")),
        parent=_text(raw.get("parent") or ""),
        dependencies=_texts(raw.get("dependencies")),
        property_dependencies=_property_dependencies(raw.get("propertyDependencies")),
        provider=_text(raw.get("provider") or ""),
        created=_text(raw.get("created") or ""),
        modified=_text(raw.get("modified") or ""),
        delete=bool(raw.get("delete", False)),
        pending_replacement=bool(raw.get("pendingReplacement", False)),
        extras={key: value for key, value in raw.items() if key not in _OWN},
    )
    if text and "\n" not in text:
        state.__dict__["data"] = text.encode()
    return state


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _object(value: Value) -> dict[str, Value]:
    if not isinstance(value or {}, dict):
        raise TypeError(f"{value!r} is not an object")
    return value if isinstance(value, dict) else {}


def _texts(value: Value) -> tuple[str, ...]:
    if not isinstance(value or [], list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(_text(item) for item in value) if isinstance(value, list) else ()


def _property_dependencies(value: Value) -> PropertyDependencies | None:
    return None if value is None else {key: _texts(urns) for key, urns in _object(value).items()}


class Pending(Struct, frozen=True):
    """An operation that was under way: `kind` is creating, updating, deleting (or another word of the CLI's)."""

    kind: str
    resource: ResourceState

    @property
    def text(self) -> str:
        """The operation as one line of JSON, as the state file has it."""
        return f'{{"resource":{self.resource.text},"type":{compact(self.kind)}}}'


def pending_from_json(raw: dict[str, Value]) -> Pending:
    """Read an operation that was under way."""
    return Pending(kind=_text(raw["type"]), resource=resource_from_json(_object(raw["resource"])))
