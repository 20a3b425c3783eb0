"""Where metrics may be served: on the loopback and nowhere else."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from locallb.cli.arguments import parse
from locallb.cli.grammar import USUAL_PAGE
from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.config.values import METRICS, PAGE, loopback_place


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [("127.0.0.1:9477", "127.0.0.1", 9477), ("127.9.9.9:0", "127.9.9.9", 0), ("[::1]:65535", "::1", 65535)],
)
def test_loopback_addresses_are_taken(text: str, address: str, port: int) -> None:
    """Of both families."""
    assert loopback_place(text) == (ip_address(address), port)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.0.0.0:9477", "0.0.0.0 isn't a loopback address"),
        ("[::]:9477", ":: isn't a loopback address"),
        ("192.168.1.5:9477", "192.168.1.5 isn't a loopback address"),
        ("localhost:9477", '"localhost:9477" is no address with a port'),
        ("9477", '"9477" is no address with a port'),
        (":9477", '":9477" is no address with a port'),
        ("::1:9477", "is no address with a port"),
        ("[127.0.0.1]:9477", "is no address with a port"),
        ("127.0.0.1", "is no address with a port"),
        ("127.0.0.1:65536", '"65536" is no port'),
        ("127.0.0.1:-1", '"-1" is no port'),
        ("127.0.0.1:²", "is no port"),
    ],
)
def test_metrics_place_outside_the_loopback_is_refused(text: str, sentence: str) -> None:
    """By the option's parser, and by the configuration's with its key."""
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9477") as reported:
        loopback_place(text)
    assert sentence in str(reported.value)
    with pytest.raises(SettingsError) as refused:
        parse_settings({"sources": [{"manifests": "m"}], "metrics": text})
    assert "local-lb:metrics" in str(refused.value)


def test_the_configuration_may_name_one() -> None:
    """Off unless it does."""
    assert not parse_settings({"sources": [{"manifests": "m"}]}).metrics
    assert parse_settings({"sources": [{"manifests": "m"}], "metrics": "127.0.0.1:9477"}).metrics == "127.0.0.1:9477"


@pytest.mark.parametrize(("key", "usual"), [("metrics", METRICS), ("page", USUAL_PAGE)])
@pytest.mark.parametrize(
    ("given", "place"),
    [((), ""), (("4711",), "127.0.0.1:4711"), (("[::1]:4711",), "[::1]:4711"), (("0",), "127.0.0.1:0")],
)
def test_an_option_needs_no_address_and_no_port(key: str, usual: str, given: tuple[str, ...], place: str) -> None:
    """The usual ones are meant then."""
    assert getattr(parse(["watch", f"--{key}", *given, "--plain"]), key) == (place or usual)
    assert not getattr(parse(["watch", "--plain"]), key)


@pytest.mark.parametrize(("key", "usual"), [("metrics", METRICS), ("page", PAGE)])
def test_a_mistake_is_answered_with_the_usual_place_of_what_was_meant(
    key: str, usual: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the page its own port, not that of metrics; in the configuration as well."""
    for place in ("65536", "0.0.0.0:1", "shop"):
        with pytest.raises(SystemExit):
            parse(["watch", f"--{key}", place])
        assert f" {usual}\n" in capsys.readouterr().err
    for value in (9478, "shop"):
        with pytest.raises(SettingsError, match=usual):
            parse_settings({"sources": [{"manifests": "m"}], key: value})
