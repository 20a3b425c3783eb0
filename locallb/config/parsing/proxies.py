"""Parses the key `proxies`."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.config.parsing.containers import makes_containers
from locallb.config.settings import ProxySettings, Sharing
from locallb.config.values import Mistakes
from locallb.model.formatting import shown

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
        mistakes.add("proxies", f"{shown(mode)} is no way to share proxies; use per-service or shared, or {_EXAMPLES}")
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
