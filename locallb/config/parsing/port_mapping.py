"""Parses the key `portMapping`."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.config.status_settings import IpMode
from locallb.config.values import Mistakes
from locallb.model.formatting import shown

_LOOPBACK, _OFF = "loopback", "off"


def parse_port_mapping(mistakes: Mistakes, config: Mapping[str, object]) -> bool:
    """Read it, and refuse what goes by addresses of Services' own."""
    value = config.get("portMapping", _OFF)
    if value is False or value == _OFF:  # YAML 1.1 takes `off` for false
        return False
    if value != _LOOPBACK:
        mistakes.add("portMapping", f"{shown(value)} is no way to map ports; use {_LOOPBACK}, or remove the key")
        return False
    for key in ("pools", "pins"):
        if key in config:
            mistakes.add(key, "with portMapping every Service is at 127.0.0.1; remove this key, or portMapping")
    if config.get("ipMode") == IpMode.VIP:
        mistakes.add("ipMode", "with portMapping it would take what Nodes send to their own 127.0.0.1; use Proxy")
    if config.get("http3") is True:
        mistakes.add("http3", "with portMapping its ports of UDP are nobody's to keep; remove one of the two")
    return True
