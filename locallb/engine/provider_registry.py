"""The providers of a run: by package as the caller gave them, by URN as the stack's provider resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias, cast

from locallb.engine.provider_handles import Direct, DirectHandle, Handle
from locallb.engine.state.errors import Unsupported
from locallb.engine.state.urns import package_of, type_of

if TYPE_CHECKING:
    from pulumi.provider.experimental.provider import Provider

    from locallb.engine.protocol_providers import LoopPool

    AnyProvider: TypeAlias = Provider | Direct
    ProviderSource: TypeAlias = AnyProvider | Callable[[], AnyProvider]


class Providers:
    """Makes one handle per provider resource."""

    def __init__(self, sources: Mapping[str, ProviderSource]) -> None:
        self._sources = sources
        self._handles: dict[str, Handle] = {}
        self._shared: dict[str, Handle] = {}
        self._lock = Lock()
        self._loops: LoopPool | None = None

    def handle(self, urn: str) -> Handle:
        """Return the provider for the provider resource of this URN."""
        with self._lock:
            if urn not in self._handles:
                self._handles[urn] = self._make(urn, package_of(type_of(urn)))
            return self._handles[urn]

    def _make(self, urn: str, package: str) -> Handle:
        source = self._sources.get(package)
        if source is None:
            raise Unsupported(f"the provider {package} of {urn}")
        if callable(source):
            return self._handle_of(source())
        return self._shared.setdefault(package, self._handle_of(source))

    def _handle_of(self, provider: AnyProvider) -> Handle:
        if direct := getattr(provider, "direct", None):
            return DirectHandle(direct)
        from locallb.engine.protocol_providers import LoopPool, ProtocolHandle  # noqa: PLC0415 - loads the SDK, asyncio

        self._loops = self._loops or LoopPool()
        return ProtocolHandle(cast("Provider", provider), self._loops)

    def close(self) -> None:
        """Give back what the run's providers had for themselves."""
        if self._loops:
            self._loops.close()
