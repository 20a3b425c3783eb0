"""The typed arguments of a program are the keys of the configuration, at every depth."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from locallb.components import arguments
from locallb.components.arguments import Arguments, configuration, key_of
from locallb.config import dns, services
from locallb.config.parsing import KEYS, parse_settings
from locallb.config.registry import OUTPUTS, SOURCES, source_entry
from locallb.config.settings import SettingsError
from locallb.dns.provider import PROVIDERS


def keys(record: Any) -> set[str]:  # noqa: ANN401 - a TypedDict
    """Return the keys of the configuration that a record has."""
    return {key_of(name) for name in record.__annotations__}


def test_the_arguments_are_all_keys() -> None:
    """Of the stack, of pools, policies and names; and of entries of every source."""
    assert keys(Arguments) == {*KEYS, *OUTPUTS.having("entry")}
    assert keys(arguments.Pool) == set(services._POOL_KEYS)
    assert keys(arguments.Policies) == set(services._POLICY_KEYS)
    assert keys(arguments.Dns) == set(dns._KEYS)
    assert keys(arguments.Zone) == {"zone", "embedded", *PROVIDERS}
    for word, registered in PROVIDERS.items():
        assert keys(getattr(arguments, word.capitalize())) == {"server", "owner", "takeOver", *registered.keys}
    assert keys(arguments.Source) == {key for word in SOURCES for key in source_entry(word).keys}


RECORDS = {
    "classes": arguments.Classes,
    "ingress": arguments.Ingress,
    "leaderElection": arguments.LeaderElection,
    "proxies": arguments.Proxies,
    "image": arguments.Image,
    "limits": arguments.Limits,
}


@pytest.mark.parametrize("key", RECORDS)
def test_a_record_has_the_keys_that_the_configuration_knows(key: str) -> None:
    """None of them is refused as unknown, and another one is refused with all of them."""
    with pytest.raises(SettingsError) as caught:
        parse_settings({"sources": [{"manifests": "m"}], key: {**dict.fromkeys(keys(RECORDS[key])), "qqqq": 1}})
    unknown = [sentence for sentence in caught.value.sentences if "no such key" in sentence]
    assert len(unknown) == 1
    assert {name.strip() for name in unknown[0].partition("the keys are ")[2].split(",")} == keys(RECORDS[key])


def test_arguments_become_the_configuration() -> None:
    """Names of records are spelled as it has them, those of maps stay; an unknown one is left to its checks."""
    given = {
        "sources": [{"kubernetes": {"name": "a", "pod_cidrs": ["10.0.0.0/8"], "nodes": {"context": "b"}}}],
        "pins": {"my_shop/web": ["127.77.0.5"]},
        "selector": {"team_name": "web"},
        "pod_cidrs": {"my_cluster": ["10.0.0.0/8"]},
        "ingress": {"class_": "local"},
        "dns": {"zones": [{"zone": "test", "rfc2136": {"server": "::1", "take_over": "x"}}], "in_status": True},
        "odd_one": {"in_it": 1},
    }
    assert configuration(given) == {
        "sources": [{"kubernetes": {"name": "a", "podCIDRs": ["10.0.0.0/8"], "nodes": {"context": "b"}}}],
        "pins": {"my_shop/web": ["127.77.0.5"]},
        "selector": {"team_name": "web"},
        "podCIDRs": {"my_cluster": ["10.0.0.0/8"]},
        "ingress": {"class": "local"},
        "dns": {"zones": [{"zone": "test", "rfc2136": {"server": "::1", "takeOver": "x"}}], "inStatus": True},
        "odd_one": {"in_it": 1},
    }


def test_every_record_is_part_of_the_arguments() -> None:
    """So that its keys are spelled."""
    named = str(get_type_hints(Arguments, localns={"Output": list, "T": Any}))
    nested = {"Nodes", "Cluster", "Shoots", "Zone", *map(str.capitalize, PROVIDERS)}
    records = {name for name, one in vars(arguments).items() if hasattr(one, "__required_keys__")} - {"Arguments"}
    assert {name for name in records if f"arguments.{name}" in named} == records - nested
