"""What clusters are told of silent ports: laws over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locallb.model.identities import ClusterName, ObjectKey, Protocol, UpstreamName
from locallb.model.objects import ServicePort
from locallb.planning.statuses import SilentPort
from locallb.watch.failures import LASTING, Silences

PORTS = [
    SilentPort(ObjectKey(ClusterName("c"), "n", name), ServicePort(80, Protocol.TCP), UpstreamName("tcp-80-ipv4"))
    for name in ("api", "web", "db")
]


@given(st.lists(st.tuples(st.floats(0, 2 * LASTING), st.frozensets(st.sampled_from(PORTS))), max_size=20))
def test_what_is_told_changes_only_after_it_has_been_otherwise_for_so_long(
    steps: list[tuple[float, frozenset[SilentPort]]],
) -> None:
    """A change back in between begins anew; the next look is when the first one has lasted."""
    silences, now, reported, since = Silences(), 0.0, frozenset[SilentPort](), dict[SilentPort, float]()
    for gap, silent in steps:
        now += gap
        since = {port: since.get(port, now) for port in silent ^ reported}
        changed = {port for port, at in since.items() if at + LASTING <= now}
        reported ^= changed
        since = {port: at for port, at in since.items() if port not in changed}
        silences = silences.observed(now, silent)
        assert silences.published == reported
        at = silences.check_at()
        assert (at is None) == (not since)
        if at is not None:
            assert now < at <= now + LASTING
            assert silences.observed(at, silent).published != reported
