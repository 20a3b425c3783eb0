"""Our Pulumi provider `locallb`: in-process for the embedded engine, and a plugin for the Pulumi CLI.

Each kind of resource is a class of its own, typed by what `schema.json` says. What can be planned isn't decided here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from locallb.config.registry import RUNTIMES
from locallb.outputs.output import outputs
from locallb.provider.certificates import LocalCertificate, ServedCertificate
from locallb.provider.claims import LoopbackAddress, LoopbackPorts, ServiceClaim
from locallb.provider.fragments import ServiceConfig
from locallb.provider.initialized_node import InitializedNode
from locallb.provider.own_class import OwnClass
from locallb.provider.pod_routes import ApiRelay, PodRoutes
from locallb.provider.proxy_config import ProxyConfig
from locallb.provider.reachable import Reachable
from locallb.provider.resource_types import AnyResourceType, ResourceTypes
from locallb.resources.resource_type import ProviderError

if TYPE_CHECKING:
    from pulumi.provider.experimental.provider import Provider

__all__ = ["KINDS", "ProviderError", "make_provider", "make_types"]

KINDS: tuple[type[AnyResourceType], ...] = (
    LoopbackAddress,
    LoopbackPorts,
    ServedCertificate,
    LocalCertificate,
    ProxyConfig,
    *(RUNTIMES.load(word, "resource_type") for word in RUNTIMES.having("resource_type")),
    ServiceConfig,
    Reachable,
    ServiceClaim,
    PodRoutes,
    OwnClass,
    InitializedNode,
    ApiRelay,
    *(kind for output in outputs().values() for kind in output.resource_types),
)


def make_types(root: Path | None = None) -> ResourceTypes:
    """Make the types for the embedded engine. Their errors are ProviderError and ClientError: one sentence each.

    `root` is the directory of the deployed project: deletions leave alone what another project owns, if its state was
    copied here.
    """
    return ResourceTypes({f"locallb:index:{kind.__name__}": kind(root) for kind in KINDS})


def make_provider(root: Path | None = None) -> Provider:
    """Make the provider for Pulumi's protocol, of the same types."""
    from locallb.provider.plugin import Dispatcher  # noqa: PLC0415 - loads the SDK

    schema = Path(__file__).with_name("schema.json").read_text(encoding="utf-8")
    return Dispatcher(make_types(root), schema)
