"""Gateway API's definitions, of the release that the package carries: reading, validation, and the installation plan.

Not here: requests to a cluster (`kubernetes.api.discovery`), and the effect of an invalid object on clients
(`gateway.kinds`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.model.fields import JsonObject, StructuralFault, at, text_of
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

if TYPE_CHECKING:
    import jsonschema_rs


Document: TypeAlias = JsonObject
FILE = "gateway-api.json.xz"


class DefinitionsError(ClientError):
    """The carried definitions can't be read: one sentence."""


class Bundle(Struct, frozen=True):
    """One release."""

    version: str
    channels: Mapping[str, tuple[Document, ...]]
    """By channel: its CustomResourceDefinitions, then the policy that guards them and its binding."""


def carried() -> Bundle:
    """Read the release that this version of local-lb carries. Raises BundleError."""
    try:
        import lzma  # noqa: PLC0415 - a Python may have been built without it
    except ImportError:
        raise DefinitionsError(
            "this Python was built without lzma, which the definitions need; use another one"
        ) from None
    try:
        read = json.loads(lzma.decompress(files(__package__).joinpath(FILE).read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        sentence = f"{FILE} of the installed local-lb can't be read ({error!r:.100}); install local-lb again"
        raise DefinitionsError(sentence) from None
    return Bundle(read["version"], {name: tuple(documents) for name, documents in read["channels"].items()})


_CHANNEL = "experimental"
"""The channel with every kind and every field of the other one."""
_MAX_FAULTS = 16
"""Faults of one object that are reported."""
_NAMES = frozenset({"properties", "patternProperties"})
"""Keywords with keys that are names of fields."""
_TEXTS = frozenset({"description", "default", "x-kubernetes-validations"})
"""Keywords that say nothing about the structure."""
_KEYS = "x-kubernetes-list-map-keys"


def structural_faults(document: Mapping[Any, Any]) -> tuple[StructuralFault, ...]:
    """Return what a server would refuse of an object; nothing of kinds and versions without a carried definition.

    For objects that never passed a server. Only the structure is validated. The definitions' rules in CEL aren't run:
    the ones that affect served traffic are checked where the fields are parsed.
    """
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return ()
    version = version.rpartition("/")[2]
    validator = _validator(kind, version)
    if validator is None:
        return ()
    spec = with_defaults(document.get("spec"), _schemas()[kind, version])
    try:
        errors = list(islice(validator.iter_errors(spec), _MAX_FAULTS))
    except ValueError as error:  # no JSON: keys that are no text, or nested too deep
        return (_fault((), kind, str(error)),)
    return tuple(_fault(tuple(error.instance_path), kind, error.message) for error in errors)


def _fault(path: tuple[str | int, ...], kind: str, why: str) -> StructuralFault:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return StructuralFault(
        path, f"spec{clipped(place)}: the definition of {kind} refuses it: {clipped(why)}; correct it"
    )


@cache
def _validator(kind: str, version: str) -> jsonschema_rs.Draft7Validator | None:
    schema = _schemas().get((kind, version))
    if schema is None:
        return None
    try:
        import jsonschema_rs  # noqa: PLC0415 - few stacks have manifests of Gateway API
    except ImportError:  # where it can't be had; what decides about clients is checked while parsing, too
        return None
    return jsonschema_rs.Draft7Validator(dict(_adapted(schema)), keywords={_KEYS: _DistinctKeys})


@cache
def _schemas() -> Mapping[tuple[str, str], JsonObject]:
    """Return the schema of each kind's spec, by kind and version; none where the definitions can't be read."""
    try:
        documents = carried().channels[_CHANNEL]
    except DefinitionsError:  # as of a Python without lzma; what decides about clients is checked while parsing, too
        return {}
    definitions = [document["spec"] for document in documents if document["kind"] == "CustomResourceDefinition"]
    return {
        (definition["names"]["kind"], version["name"]): version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for definition in definitions
        for version in definition["versions"]
    }


def with_defaults(value: Any, schema: JsonObject) -> Any:  # noqa: ANN401 - a field has any JSON
    """Return a value as a server completes it before it validates: absent and null fields have their defaults."""
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(entry, schema["items"]) for entry in value]
    fields = schema.get("properties")
    if not isinstance(value, dict) or not fields:
        return value
    given = {name: of["default"] for name, of in fields.items() if "default" in of and value.get(name) is None}
    return {name: with_defaults(part, fields.get(name, {})) for name, part in {**value, **given}.items()}


def _adapted(schema: JsonObject) -> JsonObject:
    """Return a structural schema as JSON Schema: a server leaves out fields that are null."""
    made = {key: _of_keyword(key, value) for key, value in schema.items() if key not in _TEXTS}
    if schema.get("x-kubernetes-list-type") == "set":
        made["uniqueItems"] = True
    return made


def _of_keyword(key: str, value: Any) -> Any:  # noqa: ANN401 - a schema's keyword has any JSON
    if key in _NAMES:
        return {name: _nullable(_adapted(of_field)) for name, of_field in value.items()}
    if isinstance(value, dict):
        return _adapted(value)
    if isinstance(value, list) and key in {"allOf", "anyOf", "oneOf"}:
        return [_adapted(each) for each in value]
    return value


def _nullable(schema: JsonObject) -> JsonObject:
    allowed = {**schema, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema
    return {**allowed, "enum": [*schema["enum"], None]} if "enum" in schema else allowed


class _DistinctKeys:
    """The keyword by which a server demands that entries of a list differ in some fields."""

    def __init__(self, _schema: JsonObject, keys: Iterable[str], _path: object) -> None:
        self._keys = tuple(keys)

    def validate(self, entries: object) -> None:
        """Raise ValueError for two entries with equal keys."""
        observed = set[str]()
        for named in self._of(entries):
            if named in observed:
                raise ValueError(f"two entries have {named}")
            observed.add(named)

    def _of(self, entries: object) -> Iterator[str]:
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                yield ", ".join(f"{key} {entry.get(key)!r}" for key in self._keys)


Name: TypeAlias = tuple[str, str]
"""A kind and a name."""
DEFINITION = "CustomResourceDefinition"
_VERSION, _CHANNEL_ANNOTATION = "gateway.networking.k8s.io/bundle-version", "gateway.networking.k8s.io/channel"
_RELEASE = pattern(r"v(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-[0-9A-Za-z.-]{1,40})?")
DEFAULT = "standard"


class InstallStep(Struct, frozen=True):
    """One object of the release, and the installed one in its place."""

    document: Document
    had: str
    """The installed release; empty if it isn't installed."""
    has: str
    """The release that is carried."""

    @property
    def name(self) -> Name:
        return name_of(self.document)

    @property
    def done(self) -> bool:
        """Return whether there is nothing to do."""
        return self.had == self.has


class CrdPlan(Struct, frozen=True):
    """The step for each object, in the order in which they are written."""

    version: str
    channel: str
    steps: tuple[InstallStep, ...]
    refusal: str = ""
    """The reason that nothing may be written: one sentence, or empty."""


def name_of(document: Document) -> Name:
    """Return the kind and name of a document."""
    return str(document["kind"]), str(document["metadata"]["name"])


def names(bundle: Bundle) -> tuple[Name, ...]:
    """Return every object that must be looked up in a cluster, in any channel."""
    all_names = (name_of(document) for documents in bundle.channels.values() for document in documents)
    return tuple(dict.fromkeys(all_names))


def plan(bundle: Bundle, observed: Mapping[Name, Document], wished: str) -> CrdPlan:
    """Decide by the installed objects; without a wish, in the installed channel, or else the standard one.

    Pure. An older object never replaces a newer one, nor one channel another. Refusals of the API server, as by Gateway
    API's own policy, are found by requests to it and not judged here.
    """
    channels = _channels(observed)
    channel = wished or (channels.pop() if len(channels) == 1 and channels <= {*bundle.channels} else DEFAULT)
    steps = tuple(
        InstallStep(document, _stated(observed.get(name_of(document), {}), _VERSION), bundle.version)
        for document in bundle.channels[channel]
    )
    mixed = len(_channels(observed)) > 1
    refusals = (_refusal(document, name, bundle.version, channel, mixed=mixed) for name, document in observed.items())
    return CrdPlan(bundle.version, channel, steps, next(filter(None, refusals), ""))


def _channels(observed: Mapping[Name, Document]) -> set[str]:
    return {_stated(document, _CHANNEL_ANNOTATION) for (kind, _), document in observed.items() if kind == DEFINITION}


def _refusal(document: Document, name: Name, version: str, channel: str, *, mixed: bool) -> str:
    """Return the reason that an installed object must not be overwritten, which applies to the whole release."""
    kind, called = name
    if at(document, "metadata", "deletionTimestamp"):
        return f"{kind} {called} is being deleted; run this again once it is gone"
    has, of = _stated(document, _VERSION), _stated(document, _CHANNEL_ANNOTATION)
    installed = _parsed(has)
    if installed is None:
        fault = f"its annotation {_VERSION} is {shown(has) if has else 'missing'}"
        return f"{kind} {called} is no release's of Gateway API ({fault}); bring it up to date by what installed it"
    if installed > (_parsed(version) or installed):
        return f"{kind} {called} is of {has}, newer than {version}, which this local-lb carries; use a newer local-lb"
    if kind == DEFINITION and of != channel and mixed:
        return f"{kind} {called} is of the channel {shown(of)}, others aren't; bring all to one by what made them"
    if kind == DEFINITION and of != channel:
        remedy = f"say --channel {of}" if of in {"standard", "experimental"} else "bring it up to date by what made it"
        return f"{kind} {called} is of the channel {shown(of)}, and another one isn't put over it; {remedy}"
    return ""


def _stated(document: Document, annotation: str) -> str:
    return text_of(at(document, "metadata", "annotations", annotation))


def _parsed(version: str) -> tuple[int, int, int, bool] | None:
    """Parse a release so that later ones are greater: a candidate precedes its release."""
    match = _RELEASE.fullmatch(version)
    return (int(match[1]), int(match[2]), int(match[3]), not match[4]) if match else None
