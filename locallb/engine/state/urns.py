"""Uniform resource names, Pulumi's identity of a resource: `urn:pulumi:<stack>::<project>::<types>::<name>`.

The types are those of the parents, joined by `$`, the Stack left out, and the resource's own.
"""

STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_PREFIX = "pulumi:providers:"
_PARTS = 4


def make_urn(stack: str, project: str, parent: str, type_: str, name: str) -> str:
    """Name a resource below `parent` (a URN, or nothing)."""
    above = qualified_type(parent) if parent else ""
    types = type_ if above in {"", STACK_TYPE} else f"{above}${type_}"
    return f"urn:pulumi:{stack}::{project}::{types}::{name}"


def root_urn(project: str, stack: str, type_: str, name: str) -> str:
    """Name a resource directly below the Stack, such as a root component: what a scope lists."""
    return make_urn(stack, project, "", type_, name)


def stack_urn(project: str, stack: str) -> str:
    return make_urn(stack, project, "", STACK_TYPE, f"{project}-{stack}")


def qualified_type(urn: str) -> str:
    """Return the types part: `parent$child`."""
    return urn.split("::", _PARTS - 1)[2]


def type_of(urn: str) -> str:
    """Return the resource's own type."""
    return qualified_type(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    return urn.split("::", _PARTS - 1)[-1]


def is_urn(text: str) -> bool:
    """Return whether the text has a URN's form."""
    return text.startswith("urn:pulumi:") and len(text.split("::", _PARTS - 1)) == _PARTS


def provider_reference(urn: str, identity: str) -> str:
    """Refer to a provider resource, as a resource's `provider` field does."""
    return f"{urn}::{identity}"


def split_reference(reference: str) -> tuple[str, str]:
    """Take a provider reference apart into the provider's URN and id."""
    urn, _, identity = reference.rpartition("::")
    return urn, identity


def package_of(type_: str) -> str:
    """Return the package of a resource or provider type."""
    return type_.removeprefix(PROVIDER_PREFIX) if is_provider(type_) else type_.split(":", 1)[0]


def is_provider(type_: str) -> bool:
    """Return whether the type is a provider's."""
    return type_.startswith(PROVIDER_PREFIX)


def is_default_provider(urn: str) -> bool:
    """Return whether the URN is one of the providers that Pulumi adds by itself."""
    name = name_of(urn)
    return is_provider(type_of(urn)) and (name == "default" or name.startswith("default_"))
