"""Routes of a Gateway of which one changes: the result is as if nothing was cached, and others aren't made again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from locallb.gateway.texts import route_lines, sentences
from locallb.gateway.translation import bind
from locallb.model.http_serving import HttpRoutes, VirtualHost
from locallb.model.memory import AnyMemo, Memo
from tests.gateway.written import routes
from tests.support.gateway_objects import JsonObject, gateway, gateway_class, listener, objects, parent, route, service

_LISTENERS = (listener("any"), listener("a", hostname="*.a.test"), listener("other", 8080))
_AROUND = (gateway_class(), gateway(*_LISTENERS), service())


def _named(written: list[JsonObject]) -> list[JsonObject]:
    return [{**each, "metadata": {**each["metadata"], "name": f"r{number}"}} for number, each in enumerate(written)]


@given(st.lists(routes(), min_size=1, max_size=5), st.integers(0, 4), routes())
@settings(max_examples=60)
def test_what_is_bound_is_the_same_with_what_was_bound_before(
    written: list[JsonObject], number: int, other: JsonObject
) -> None:
    memory: AnyMemo = Memo()
    changed = [*written]
    changed[number % len(written)] = other
    for documents in (written, changed, written):
        read = objects(*_AROUND, *_named(documents))
        cached = bind(read, memory=memory)
        assert cached == bind(read)
        assert list(sentences(read, cached, memory)) == list(sentences(read, cached))
        assert [route_lines(each, memory.of(each.key, Memo)) for each in cached] == [*map(route_lines, cached)]


def _hosts(documents: list[JsonObject], memory: AnyMemo) -> dict[str, VirtualHost]:
    (one,) = bind(objects(*_AROUND, *documents), memory=memory)
    (chain,) = one.chains[80]
    assert isinstance(chain.serves, HttpRoutes)
    return {host.domains[0]: host for host in chain.serves.hosts}


def test_hosts_of_other_routes_are_the_very_same() -> None:
    memory: AnyMemo = Memo()
    others = [route(name=f"r{number}", hostnames=[f"h{number}.test"], parentRefs=[parent()]) for number in range(5)]
    before = _hosts([*others, route(name="mine", hostnames=["mine.test"])], memory)
    after = _hosts([*others, route(name="mine", hostnames=["new.test"])], memory)
    assert after.keys() - before.keys() == {"new.test"}
    assert all(after[name] is before[name] for name in after.keys() & before.keys())
