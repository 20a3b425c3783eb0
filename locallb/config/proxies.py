"""Parses the keys for proxies: `proxies`, and for their containers `network`, `image`, `limits` and `compat`.

`proxies` decides whether each Service has a proxy of its own or all share a few, and how many. The keys for containers
belong to runtimes that make containers, and are refused with any other runtime.

Not here: the content of a container (`provider.docker_spec`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from locallb.config.registry import RUNTIMES
from locallb.config.settings import KIND_NETWORK, Compat, ContainerSettings, ProxySettings, PullPolicy, Sharing
from locallb.config.values import Mistakes
from locallb.model.identities import ImageName
from locallb.model.texts import shown
from locallb.patterns import pattern

KEYS = ("network", "image", "limits", "compat")
_IMAGE = pattern(r"[a-z0-9][a-z0-9._/:@-]*", re.IGNORECASE)
_NETWORK = pattern(r"[a-z0-9][a-z0-9_.-]*", re.IGNORECASE)
_MIRROR = pattern(r"[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*", re.IGNORECASE)
_LEAST_MEMORY = 64
_EXAMPLE_IMAGE = "a reference such as local-lb/envoy:1.40.0"
_EXAMPLE_LIMITS = "{memory: 512, cpus: 1.5}"
_LEAST_CPUS = Decimal("0.01")
_CPU_DIGITS = 9


def parse_containers(mistakes: Mistakes, config: Mapping[str, object]) -> ContainerSettings:
    """Read them; every mistake is noted."""
    for key in KEYS:
        if key in config and not makes_containers(config.get("runtime")):
            makers = " and ".join(word for word in RUNTIMES if makes_containers(word))
            mistakes.add(key, f"{shown(config[key])} is for the runtimes {makers} only; remove the key")
    image, pull, mirror = _image(mistakes, config.get("image"))
    limits = mistakes.mapping("limits", config.get("limits", {}), _EXAMPLE_LIMITS)
    mistakes.unknown("limits.", limits, ("memory", "cpus"))
    return ContainerSettings(
        image=image,
        memory=_memory(mistakes, limits),
        cpus=_cpus(mistakes, limits["cpus"]) if "cpus" in limits else "",
        network=_network(mistakes, config.get("network", "host")),
        pull=pull,
        mirror=mirror,
        compat=_compat(mistakes, config["compat"]) if "compat" in config else None,
    )


def makes_containers(runtime: object) -> bool:
    """Return whether this is a runtime for which these keys are."""
    return isinstance(runtime, str) and runtime in RUNTIMES and RUNTIMES.load(runtime, "planner").makes_containers


def _network(mistakes: Mistakes, value: object) -> str:
    """Return the network on which ports are published; empty for the host's own."""
    if value == "host":
        return ""
    if value == "publish":
        return KIND_NETWORK
    if isinstance(value, Mapping) and set(value) == {"publish"}:
        name = mistakes.text("network.publish", value["publish"], f"a Docker network such as {KIND_NETWORK}")
        if name and (not _NETWORK.fullmatch(name) or name in {"host", "none", "bridge"}):
            mistakes.add("network.publish", f"{shown(name)} is no Docker network of one's own; name one such as kind")
        return name
    mistakes.add("network", f"{shown(value)} is no network of containers; use host, publish or {{publish: NETWORK}}")
    return ""


def _image(mistakes: Mistakes, value: object) -> tuple[ImageName, PullPolicy, str]:
    """Read a reference, or an object with a reference, pull policy and mirror."""
    default = ContainerSettings()
    if value is None:
        return default.image, default.pull, default.mirror
    if not isinstance(value, Mapping):
        return _reference(mistakes, "image", value), default.pull, default.mirror
    mistakes.unknown("image.", value, ("name", "pullPolicy", "mirror"))
    image = _reference(mistakes, "image.name", value["name"]) if "name" in value else default.image
    pull = mistakes.choice(
        "image.pullPolicy", value.get("pullPolicy", default.pull), PullPolicy, default.pull, "policy"
    )
    mirror = ""
    if "mirror" in value:
        mirror = mistakes.text("image.mirror", value["mirror"], "a registry such as mirror.example:5000")
        if mirror and not _MIRROR.fullmatch(mirror):
            mistakes.add("image.mirror", f"{shown(mirror)} is no registry; write one such as mirror.example:5000")
    return image, pull, mirror


def _reference(mistakes: Mistakes, key: str, value: object) -> ImageName:
    image = ImageName(mistakes.text(key, value, _EXAMPLE_IMAGE))
    if image and not _IMAGE.fullmatch(image):
        mistakes.add(key, f"{shown(image)} is no image; write {_EXAMPLE_IMAGE}")
    return image


def _memory(mistakes: Mistakes, limits: Mapping[str, object]) -> int:
    if "memory" not in limits:
        return ContainerSettings().memory
    memory = mistakes.number("limits.memory", limits["memory"])
    if memory < _LEAST_MEMORY:
        mistakes.add("limits.memory", f"{memory} MiB are too few for Envoy; give it {_LEAST_MEMORY} or more")
    return memory


def _cpus(mistakes: Mistakes, value: object) -> str:
    """Read a number of CPUs, in the form in which the official plugin reads it back from Docker."""
    try:
        number = Decimal("NaN") if isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        mistakes.add("limits.cpus", f"{shown(value)} is not a number; write one such as 1.5")
        return ""
    if number < _LEAST_CPUS:
        mistakes.add("limits.cpus", f"{shown(value)} CPUs are too few for Envoy; give it {_LEAST_CPUS} or more")
    return decimal_cpus(round(number * 10**_CPU_DIGITS))


def decimal_cpus(nano: int) -> str:
    """Write billionths of a CPU as the official plugin does: `1.5`, `2.0`, `0.25`, and oddly `10.`."""
    whole, rest = divmod(nano, 10**_CPU_DIGITS)
    text = f"{whole}.{rest:0{_CPU_DIGITS}d}"
    return f"{whole}.0" if text.count("0") == _CPU_DIGITS and not rest else text.rstrip("0")


def _compat(mistakes: Mistakes, value: object) -> Compat | None:
    if value not in list(Compat):
        mistakes.add("compat", f"{shown(value)} is not known; use gardener or remove the key")
        return None
    return Compat(str(value))


HOST = "host"
"""The value of `network` with which containers use the host's."""
_MAX = 64
_EXAMPLES = "{mode: shared, count: 2} or {mode: per-service, spares: 1}"


def parse_proxies(mistakes: Mistakes, config: Mapping[str, object]) -> ProxySettings:
    """Read the mode alone, or the mode with its number."""
    value = config.get("proxies", Sharing.PER_SERVICE)
    entry = value if isinstance(value, Mapping) else {"mode": value}
    mistakes.unknown("proxies.", entry, ("mode", "count", "spares"))
    mode = entry.get("mode", Sharing.PER_SERVICE)
    if mode not in list(Sharing):
        mistakes.add("proxies", f"unknown value {shown(mode)}; use per-service or shared, or {_EXAMPLES}")
        return ProxySettings()
    if "count" in entry and mode != Sharing.SHARED:
        mistakes.add("proxies.count", f"it is for the mode {Sharing.SHARED} only; remove the key or change the mode")
    numbers = {
        number: _bounded(mistakes, f"proxies.{number}", entry[number], least)
        for number, least in (("count", 1), ("spares", 0))
        if number in entry
    }
    settings = ProxySettings(Sharing(str(mode)), count=numbers.get("count", 0), spares=numbers.get("spares", 0))
    _refuse_published(mistakes, config, settings)
    return settings


def _refuse_published(mistakes: Mistakes, config: Mapping[str, object], settings: ProxySettings) -> None:
    """Refuse what containers don't do: published ports are fixed when a container is made."""
    published = makes_containers(config.get("runtime")) and config.get("network", HOST) != HOST
    if published and (settings.spares or settings.mode is Sharing.SHARED):
        mistakes.add("proxies", "published ports can't be shared or spared; use network host, or per-service proxies")


def _bounded(mistakes: Mistakes, key: str, value: object, least: int) -> int:
    """Read a number of proxies."""
    before = len(mistakes.sentences)
    number = mistakes.number(key, value)
    if len(mistakes.sentences) == before and not least <= number <= _MAX:
        mistakes.add(key, f"{number} is out of range; write a number from {least} to {_MAX}")
    return number
