"""The providers of a run: by package as the caller gave them, by URN as the stack's provider resources."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TypeAlias

from pulumi.provider.experimental.provider import Provider

from locallb.engine.providers.direct import DirectHandle
from locallb.engine.providers.handles import Handle
from locallb.engine.providers.loops import LoopPool
from locallb.engine.state.errors import Unsupported
from locallb.engine.state.urns import package_of, type_of

ProviderSource: TypeAlias = Provider | Callable[[], Provider]


class Providers:
    """Makes one handle per provider resource."""

    def __init__(self, sources: Mapping[str, ProviderSource]) -> None:
        self._sources = sources
        self._handles: dict[str, Handle] = {}
        self._shared: dict[str, Handle] = {}
        self._lock = Lock()
        self.loops = LoopPool()

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
        if not isinstance(source, Provider):
            return self._handle_of(source())
        return self._shared.setdefault(package, self._handle_of(source))

    def _handle_of(self, provider: Provider) -> Handle:
        direct = getattr(provider, "direct", None)
        return DirectHandle(provider, self.loops, direct) if direct else Handle(provider, self.loops)
