"""All our resource types by their tokens, with plain values instead of Pulumi's protocol.

The embedded engine asks here, checks and diffs in its own thread, effects in threads of its lanes; `plugin` asks for
the Pulumi CLI. Nothing here knows what a resource is for. In a preview only `check`, `diff` and
`preview_outputs` of a kind are asked, so a preview can't change anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from locallb.kubernetes.api.writes import FENCE
from locallb.model.errors import reported
from locallb.model.identities import Owner
from locallb.resources import codec
from locallb.resources.codec import UNKNOWN, Values, form_of
from locallb.resources.resource_type import InputChanges, ProviderError, ResourceType

AnyResourceType: TypeAlias = ResourceType[Any, Any]


class ResourceTypes:
    """The kinds of a provider. What goes wrong is a ProviderError or a ClientError."""

    def __init__(self, kinds: Mapping[str, AnyResourceType]) -> None:
        self._kinds = kinds

    @property
    def direct(self) -> ResourceTypes:
        """What an engine asks that can do without the protocol: this itself."""
        return self

    def check(self, token: str, news: Values) -> Sequence[tuple[str, str]]:
        """Return every property that is of the wrong type or can't be used, and why."""
        kind = self._kind(token)
        try:
            return list(kind.check(codec.decode(kind.inputs, news)))
        except codec.CodecError as error:
            return error.failures

    def diff(self, token: str, olds: Values, news: Values) -> InputChanges:
        """Return which properties change, and which of them need another resource."""
        kind = self._kind(token)
        difference: InputChanges = kind.diff(codec.recall(kind.state, olds), codec.decode(kind.inputs, news))
        return difference

    def create(self, token: str, news: Values, *, preview: bool) -> tuple[str, dict[str, Any]]:
        """Create, or tell what creating would give: an id, and the properties."""
        kind = self._kind(token)
        new = codec.decode(kind.inputs, news)
        if preview:
            return "", _previewed_outputs(kind, news, kind.preview_outputs(new, None))
        FENCE.term()
        with _reporting():
            identity, state = kind.create(new)
        return identity, codec.encode(state)

    def read(self, token: str, name: str, properties: Values) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Read what is there: its properties, and the inputs among them; None if nothing is."""
        kind = self._kind(token)
        if not properties:
            raise ProviderError(f"{name} can't be imported: declare it, `up` adopts what is there already")
        with _reporting():
            state = kind.read(codec.recall(kind.state, properties))
        if state is None:
            return None
        observed = codec.encode(state)
        return observed, {input_: observed[input_] for input_ in sorted(observed.keys() & _names(kind.inputs))}

    def hidden(self, token: str, changed: frozenset[str]) -> frozenset[str]:
        """Return which changed inputs a preview doesn't show."""
        return changed - self._kind(token).shown(changed)

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Have all kinds answer what is read as of one moment of this time, if that takes less."""
        with ExitStack() as stack:
            for kind in self._kinds.values():
                stack.enter_context(kind.one_pass())
            yield

    def prepare(self, token: str, news: Values) -> None:
        """Get ready for a creation, before what it replaces is deleted."""
        kind = self._kind(token)
        with _reporting():
            kind.prepare(codec.decode(kind.inputs, news))

    def leaves_nothing(self, token: str, news: Values) -> bool:
        """Return whether it is certain that nothing is left of a creation that was cut off."""
        kind = self._kind(token)
        return bool(kind.leaves_nothing(codec.recall(kind.state, news)))

    def update(self, token: str, olds: Values, news: Values, *, preview: bool) -> dict[str, Any]:
        """Update, or tell what updating would give."""
        kind = self._kind(token)
        old, new = codec.recall(kind.state, olds), codec.decode(kind.inputs, news)
        if preview:
            return _previewed_outputs(kind, news, kind.preview_outputs(new, old))
        FENCE.term()
        with _reporting():
            return codec.encode(kind.update(old, new))

    def delete(self, token: str, properties: Values) -> None:
        kind = self._kind(token)
        state = codec.recall(kind.state, properties)
        FENCE.term()
        with _reporting():
            if isinstance(owner := getattr(state, "owner", None), Owner):
                kind.refuse_copied(owner)
            kind.delete(state)

    def _kind(self, token: str) -> AnyResourceType:
        """Find the kind of a URN's type, `<parents' types>$<token>`."""
        short = token.rpartition("$")[2]
        if short not in self._kinds:
            raise ProviderError(f"the provider has no resource {short}: known are {', '.join(sorted(self._kinds))}")
        return self._kinds[short]


@contextmanager
def _reporting() -> Iterator[None]:
    """Add the remedy where the system refuses something. Raises ProviderError."""
    try:
        yield
    except OSError as error:
        raise ProviderError(reported(error)) from error


def _previewed_outputs(kind: AnyResourceType, inputs: Values, certain: Mapping[str, object]) -> dict[str, Any]:
    """Join inputs and outputs; what isn't certain is unknown."""
    outputs = [name for name in _names(kind.state) if name not in _names(kind.inputs)]
    existing = {name: codec.value(certain[name]) if name in certain else UNKNOWN for name in outputs}
    return dict(sorted({**inputs, **existing}.items()))


def _names(kind: type[Any]) -> tuple[str, ...]:
    return form_of(kind).fields
