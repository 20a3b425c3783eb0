"""Form of addresses in a status, as far as a stack may choose. Not here: the status itself."""

from __future__ import annotations

from enum import StrEnum


class IpMode(StrEnum):
    """status.loadBalancer.ingress[].ipMode (KEP-1860)."""

    PROXY = "Proxy"
    """kube-proxy leaves the address alone: Pods come through the proxy too."""
    VIP = "VIP"
    """kube-proxy takes Pods' connections to the address straight to the endpoints."""


class StatusOrder(StrEnum):
    """In which order a dual-stack Service's entries of status.loadBalancer.ingress are."""

    IP_FAMILIES = "ipFamilies"
    """As spec.ipFamilies has them."""
    IPV4_FIRST = "ipv4First"
    """IPv4 before IPv6, as Gardener's own controller writes them, of which its DNS takes the last."""
