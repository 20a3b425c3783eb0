"""Policies: how they are written, and the sentence of each violation."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from locallb.cli.commands.preview import print_report
from locallb.cli.console import Out
from locallb.cli.failures import Exit, refuse
from locallb.cli.grammar import EPILOG
from locallb.config.settings import Headroom, Policies, PortRange, SettingsError
from locallb.model.identities import IPAddress, Protocol
from locallb.model.snapshot import Claim
from locallb.planning.plan import make_plan
from locallb.report.changes import Gate
from locallb.report.policies import planned_violations
from tests.support.objects import node, service
from tests.support.reports import compared, settings, snapshot

NODE = node("worker", "127.0.0.1")


def refused(policies: object, old: Sequence[object], new: Sequence[object], **config: object) -> list[tuple[str, str]]:
    """Return the violations of a change, by policy."""
    report = compared([NODE, *old], [NODE, *new], settings(policies=policies, **config))
    return [(str(violation.gate), violation.message) for violation in report.violations]


def test_a_move_that_broke_off_may_be_finished_or_taken_back() -> None:
    """Its Service holds both addresses then; a third one is a change."""
    config = settings(policies={"addressChanges": "forbidden"})
    observed = snapshot(NODE, service("web"))
    first = make_plan(observed, config)
    (placement,) = first.placements
    (planned,) = placement.addresses
    other, third = planned + 7, planned + 8

    def violated(*held: IPAddress) -> int:
        claims = tuple(Claim(address, placement.owner) for address in held)
        return len(planned_violations(replace(observed, claims=claims), first, config))

    assert [violated(planned), violated(planned, other), violated(other, third), violated(other)] == [0, 0, 1, 1]


def test_all_policies_can_be_written() -> None:
    """Each arrives typed."""
    value = {"addressChanges": "forbidden", "sourceRanges": "required", "ports": [443, "8000-8999", "53/UDP"]}
    value |= {"hostnames": ["*.test", "Shop.example.com"], "tls": "required"}
    assert settings(policies={**value, "headroom": "25%", "advisory": ["ports"]}).policies == Policies(
        address_changes_forbidden=True,
        source_ranges_required=True,
        ports=(PortRange(443, 443), PortRange(8000, 8999), PortRange(53, 53, Protocol.UDP)),
        headroom=Headroom(25, percent=True),
        hostnames=("*.test", "shop.example.com"),
        tls_required=True,
        advisory=frozenset({"ports"}),
    )
    assert settings(policies={"addressChanges": "allowed", "sourceRanges": "optional"}).policies == Policies()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("strict", 'must be a mapping, not "strict"'),
        ({"addressChange": "forbidden"}, "did you mean addressChanges?"),
        ({"addressChanges": True}, "true is neither forbidden nor allowed; write one of them"),
        ({"sourceRanges": ["x"]}, "a list of 1 item is neither required nor optional"),
        ({"ports": []}, "the list is empty and would forbid every port"),
        ({"ports": 443}, "must be a list, not 443"),
        ({"ports": ["https"]}, '"https" is no port; write one such as 443, 8000-8999 or 53/UDP'),
        ({"ports": ["9-8"]}, '"9-8" is no range of ports'),
        ({"ports": [70000]}, "70000 is no range of ports"),
        ({"ports": [True]}, "true is no port"),
        ({"headroom": "101%"}, '"101%" is no number of addresses'),
        ({"hostnames": []}, "the list is empty and would forbid every hostname"),
        ({"hostnames": ["*"]}, '"*" is no hostname; write one such as "*.test" or shop.example.com'),
        ({"hostnames": ["a.test:80"]}, '"a.test:80" is no hostname'),
        ({"hostnames": [7]}, "7 is no hostname"),
        ({"tls": True}, "true is neither required nor optional"),
        ({"advisory": ["port"]}, '"port" is no policy; name some of addressChanges, sourceRanges, ports'),
        ({"headroom": -1}, "-1 is no number of addresses"),
    ],
)
def test_every_mistake_is_reported_with_key_value_and_remedy(value: object, sentence: str) -> None:
    """As for all keys of the configuration."""
    with pytest.raises(SettingsError) as caught:
        settings(policies=value)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("local-lb:policies")


def test_the_exit_codes_are_those_that_are_documented() -> None:
    """In the help and in docs/preview-in-ci.md, one for each policy."""
    docs = (Path(__file__).parents[2] / "docs/preview-in-ci.md").read_text(encoding="utf-8")
    codes = [Exit[gate.name] for gate in Gate]
    assert codes == sorted(codes)
    for gate, code in zip(Gate, codes, strict=True):
        assert f"\n {code}  `preview`, `up`: " in EPILOG
        assert re.search(rf"\| {code} \| .*`{gate}`", docs)


def test_without_policies_nothing_is_refused() -> None:
    """The default."""
    assert refused({}, [service("web")], [service("web", loadBalancerIP="127.77.0.9")]) == []


def test_an_address_that_moves_is_refused() -> None:
    """With both addresses and what to do."""
    old, new = service("web", loadBalancerIP="127.77.0.8"), service("web", loadBalancerIP="127.77.0.9")
    assert refused({"addressChanges": "forbidden"}, [old], [new]) == [
        (
            "addressChanges",
            (
                "demo/shop/web: its address 127.77.0.8 becomes 127.77.0.9, "
                "which local-lb:policies.addressChanges forbids; "
                "keep the old one (local-lb:pins can hold it), or allow changes"
            ),
        )
    ]
    assert refused({"addressChanges": "forbidden"}, [old], []) == []
    assert refused({"addressChanges": "forbidden"}, [], [new]) == []


def test_a_service_that_loses_its_address_is_refused() -> None:
    """Being rejected is a change, too."""
    old, new = service("web"), service("web", loadBalancerIP="127.99.0.1")
    (refusal,) = refused({"addressChanges": "forbidden"}, [old], [new])
    assert "it loses its address" in refusal[1]


@pytest.mark.parametrize("ranges", [[], ["0.0.0.0/0"], ["0.0.0.0/1", "128.0.0.0/1"]])
def test_a_port_without_source_ranges_is_refused(ranges: list[str]) -> None:
    """However it is written."""
    (refusal,) = refused({"sourceRanges": "required"}, [], [service("web", loadBalancerSourceRanges=ranges)])
    assert refusal == (
        "sourceRanges",
        (
            "demo/shop/web: port 8080/TCP is open to everybody, which local-lb:policies.sourceRanges forbids; "
            "name the clients in spec.loadBalancerSourceRanges"
        ),
    )


@pytest.mark.parametrize("terminals", ["none", "out", "err", "both"])
def test_the_text_has_each_violation_and_a_terminal_shows_it_once(terminals: str) -> None:
    """It is an error as well, which a terminal shows beside the report."""
    report = compared([NODE], [NODE, service("web")], settings(policies={"sourceRanges": "required"}))
    streams = [io.StringIO(), io.StringIO()]
    for name, stream in zip(("out", "err"), streams, strict=True):
        if terminals in {name, "both"}:
            stream.isatty = lambda: True  # type: ignore[method-assign]
    out = Out(*streams)
    print_report(out, report)
    assert refuse(report.violations, out) == Exit.SOURCE_RANGES
    times = [stream.getvalue().count("which local-lb:policies.sourceRanges forbids") for stream in streams]
    assert times == ([0, 1] if terminals == "both" else [1, 1])


def test_a_port_with_ranges_passes() -> None:
    """Nothing else is asked of them."""
    new = service("web", loadBalancerSourceRanges=["0.0.0.0/1"])
    assert refused({"sourceRanges": "required"}, [], [new]) == []


def test_a_port_that_is_not_allowed_is_refused() -> None:
    """By number and protocol."""
    ports = [{"port": 53, "protocol": p, "name": p.lower(), "nodePort": 30053} for p in ("TCP", "UDP")]
    (refusal,) = refused({"ports": ["53/UDP", "8000-8999"]}, [], [service("dns", ports=ports), service("web")])
    assert refusal[1].startswith(
        "demo/shop/dns: port 53/TCP is not among those that local-lb:policies.ports allows (53/UDP, "
    )


@pytest.mark.parametrize(("headroom", "refusals"), [(1, 0), (2, 1), ("25%", 0), ("50%", 1), (0, 0)])
def test_a_pool_without_headroom_is_refused(headroom: object, refusals: int) -> None:
    """Counted after the change: four addresses, two given, one pinned to nobody who is there."""
    config = {"pools": [{"name": "p", "addresses": ["127.77.0.0/30"]}], "pins": {"shop/later": ["127.77.0.2"]}}
    new = [service("a"), service("b")]
    refusals_told = refused({"headroom": headroom}, [service("gone")], new, **config)
    assert len(refusals_told) == refusals
    if refusals_told:
        assert refusals_told[0][1].startswith(
            "pool p: 1 of its 4 IPv4 addresses stay free, less than local-lb:policies.headroom"
        )
