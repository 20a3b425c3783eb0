"""The entry of a seed of Gardener in the configuration: how it is reached, and which of its shoots are meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from locallb.config.registry import CLASSES
from locallb.config.values import Mistakes
from locallb.model.identities import ClusterName, ContextName
from locallb.model.texts import clipped, shown

_EXAMPLE = '{gardener: {name: seed, kubeconfig: FILE, context: CONTEXT, shoots: ["shoot--local--*"]}}'
_TEXTS = {"kubeconfig": "a file such as ~/.kube/config", "context": "a name such as kind-gardener-local"}
_SHOOTS = "shoots"
_SHOOT = "shoot--local--shop, or with * for any text"
_PATTERN = re.compile(r"[a-z0-9*-]{1,63}")
_OF_SHOOTS = "shoot--"


class GardenerFinder(Struct, frozen=True):
    """A seed of Gardener, and the shoots that it has."""

    cluster: ClusterName
    """The seed's name as a cluster."""
    kubeconfig: str = ""
    """The seed's, as that of a running cluster."""
    context: ContextName = ContextName("")
    shoots: frozenset[str] = frozenset()
    """Technical IDs, with `*` for any text; empty for all."""
    classes: bool = False
    """Whether the seed and its shoots get a GatewayClass and an IngressClass `local-lb`."""
    consents: str = ""
    """As that of a running cluster."""
    type: ClassVar[str] = "gardener"
    live: ClassVar[bool] = True
    is_foreign: ClassVar[bool] = False
    is_administered: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.cluster

    @property
    def place(self) -> str:
        """The context, or where there is none the kubeconfig."""
        return clipped(self.context or self.kubeconfig or "the current context")


class GardenerEntry(Struct, frozen=True):
    """One seed."""

    keys: tuple[str, ...] = ("gardener",)
    finds: bool = True
    single_entry_example: str = ""

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> GardenerFinder | None:
        key = f"{key}.gardener"
        seed = mistakes.mapping(key, entry["gardener"], _EXAMPLE)
        mistakes.unknown(f"{key}.", seed, ("name", *_TEXTS, _SHOOTS, CLASSES))
        texts = mistakes.optional_texts(f"{key}.", seed, _TEXTS)
        name = mistakes.label(f"{key}.name", seed.get("name", "seed"), "seed")
        if name.startswith(_OF_SHOOTS):
            mistakes.add(f"{key}.name", f"{name} is a name of shoots; call the seed otherwise, such as seed")
        shoots = _shoots(mistakes, f"{key}.{_SHOOTS}", seed.get(_SHOOTS, "all"))
        classes = mistakes.flag(f"{key}.{CLASSES}", seed.get(CLASSES, False))
        return (
            GardenerFinder(ClusterName(name), texts["kubeconfig"], ContextName(texts["context"]), shoots, classes)
            if name
            else None
        )


def _shoots(mistakes: Mistakes, key: str, value: object) -> frozenset[str]:
    """Read which ones: none for all."""
    if value == "all":
        return frozenset()
    if value in ([], ()):
        mistakes.add(key, f"the list is empty; write `all`, or names such as {_SHOOT}")
    names = mistakes.texts(key, value, f"all, or a list such as [{_SHOOT}]")
    for name in names:
        if not _PATTERN.fullmatch(name):
            mistakes.add(key, f"{shown(name)} is no shoot's technical ID; write one such as {_SHOOT}")
    return frozenset(names)


ENTRY = GardenerEntry()
