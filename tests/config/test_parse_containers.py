"""What the configuration says of containers: what it becomes, and every mistake in one sentence."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.config.proxies import decimal_cpus
from locallb.config.settings import Compat, ContainerSettings, PullPolicy, SettingsError
from locallb.model.identities import ImageName

SOURCES = [{"manifests": "m", "name": "c"}]


def settings(**config: object) -> ContainerSettings:
    """Read a configuration with the runtime docker."""
    return parse_settings({"sources": SOURCES, "runtime": "docker", **config}).container


MISTAKES: list[tuple[dict[str, object], str]] = [
    (
        {"network": "bridge"},
        'network: "bridge" is no network of containers; use host, publish or {publish: NETWORK}',
    ),
    (
        {"network": {"publish": "a b"}},
        'network.publish: "a b" is no Docker network of one\'s own; name one such as kind',
    ),
    (
        {"network": {"publish": "bridge"}},
        'network.publish: "bridge" is no Docker network of one\'s own; name one such as kind',
    ),
    ({"image": "a b"}, 'image: "a b" is no image; write a reference such as local-lb/envoy:1.40.0'),
    ({"image": {"name": "a b"}}, 'image.name: "a b" is no image; write a reference such as local-lb/envoy:1.40.0'),
    ({"image": {"pull": "x"}}, "image.pull: no such key; the keys are name, pullPolicy, mirror"),
    (
        {"image": {"pullPolicy": "never"}},
        'image.pullPolicy: "never" is no policy; use Always, IfNotPresent or Never, or remove the key',
    ),
    (
        {"image": {"mirror": "https://x"}},
        'image.mirror: "https://x" is no registry; write one such as mirror.example:5000',
    ),
    ({"limits": {"cpu": 1}}, "limits.cpu: no such key; did you mean cpus?"),
    ({"limits": {"memory": 8}}, "limits.memory: 8 MiB are too few for Envoy; give it 64 or more"),
    ({"limits": {"cpus": "many"}}, 'limits.cpus: "many" is not a number; write one such as 1.5'),
    ({"limits": {"cpus": True}}, "limits.cpus: true is not a number; write one such as 1.5"),
    ({"limits": {"cpus": 0}}, "limits.cpus: 0 CPUs are too few for Envoy; give it 0.01 or more"),
    ({"compat": "kind"}, 'compat: "kind" is not known; use gardener or remove the key'),
]


@pytest.mark.parametrize(("config", "sentence"), MISTAKES)
def test_a_mistake_about_containers_is_reported(config: dict[str, object], sentence: str) -> None:
    """What isn't there, and what can't work, is refused by name."""
    with pytest.raises(SettingsError) as caught:
        settings(**config)
    assert caught.value.sentences == (f"local-lb:{sentence}",)


@pytest.mark.parametrize("key", ["network", "image", "limits", "compat"])
def test_containers_settings_without_containers_are_refused(key: str) -> None:
    """Never ignored."""
    with pytest.raises(
        SettingsError, match=f"local-lb:{key}: .* is for the runtimes docker and podman only; remove the key"
    ):
        parse_settings({"sources": SOURCES, key: {"network": "host", "image": "a", "compat": "gardener"}.get(key, {})})


def test_without_a_word_containers_have_the_official_image_the_hosts_network_and_512_mib() -> None:
    """The defaults."""
    assert settings() == ContainerSettings(ImageName(""), 512, "", "", PullPolicy.IF_NOT_PRESENT, "", None)
    assert settings(network="host", image="a/b:1") == ContainerSettings(ImageName("a/b:1"))


def test_every_container_key_is_parsed() -> None:
    """One of each."""
    reported = settings(
        network={"publish": "lab"},
        image={"name": "a/b:1", "pullPolicy": "Never", "mirror": "m.example:5000/x"},
        limits={"memory": 128, "cpus": 0.5},
        compat="gardener",
    )
    assert reported == ContainerSettings(
        ImageName("a/b:1"), 128, "0.5", "lab", PullPolicy.NEVER, "m.example:5000/x", Compat.GARDENER
    )
    assert settings(network="publish").network == "kind"


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (1_500_000_000, "1.5"),
        (2_000_000_000, "2.0"),
        (250_000_000, "0.25"),
        (10_000_000_000, "10."),
        (1, "0.000000001"),
    ],
)
def test_cpus_are_written_as_the_official_plugin_writes_them(nano: int, text: str) -> None:
    """As its source has it: nine digits, zeros cut, `.0` only where nine of them are zeros."""
    assert decimal_cpus(nano) == text


@given(st.decimals(min_value="0.01", max_value=512, places=9))
def test_a_number_of_cpus_settles(number: Decimal) -> None:
    """What is declared, read and written again, is the same."""
    written = settings(limits={"cpus": str(number)}).cpus
    assert decimal_cpus(round(Decimal(written) * 10**9)) == written
    assert Decimal(written) == number
