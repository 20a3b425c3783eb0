"""Policies for load balancers of local-lb, by Pulumi's own means: `pulumi up --policy-pack DIRECTORY`.

They are those of `local-lb:policies`. Here they come from another directory than the program, and from whoever owns
that. None is in force that `--policy-pack-config` doesn't name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyPack,
    ResourceValidationPolicy,
    StackValidationPolicy,
)

BALANCER = "locallb:index:LoadBalancer"
Props = Mapping[str, Any]
TEXTS = {"type": "array", "items": {"type": "string"}}


def address_changes(name: str, props: Props, config: Props) -> Iterator[str]:
    """Refuse other addresses than those that are agreed on."""
    for agreed, addresses in config.get("addresses", {}).items():
        given = listed(props, "addresses")
        if agreed in {name, name.partition("/")[2]} and sorted(given) != sorted(addresses):
            yield f"has {texts(given)}, and not {texts(addresses)}; pin that by local-lb:pins"


def source_ranges(_name: str, props: Props, _config: Props) -> Iterator[str]:
    """Refuse ports that are open to everybody."""
    clients = listed(props, "sourceRanges")
    if listed(props, "ports") and (not clients or any(each.endswith("/0") for each in clients)):
        yield f"{texts(listed(props, 'ports'))} open to everybody; name the clients in spec.loadBalancerSourceRanges"


def ports(_name: str, props: Props, config: Props) -> Iterator[str]:
    """Refuse ports that aren't allowed."""
    numbers = [port.split()[0] for port in listed(props, "ports")]  # a reason follows where it isn't served
    if odd := [port for port in numbers if not any(allows(rule, port) for rule in config["allowed"])]:
        yield f"{texts(odd)} not among those that are allowed ({texts(config['allowed'])})"


def hostnames(_name: str, props: Props, config: Props) -> Iterator[str]:
    """Refuse hostnames that aren't allowed; `*` is every one."""
    if odd := [host for host in listed(props, "hostnames") if not any(has(each, host) for each in config["allowed"])]:
        yield f"serves {texts(odd)}, not among the hostnames that are allowed ({texts(config['allowed'])})"


def tls(_name: str, props: Props, _config: Props) -> Iterator[str]:
    """Refuse ports that take requests without TLS."""
    if clear := listed(props, "withoutTls"):
        yield f"{texts(clear)} takes requests without TLS; let a listener redirect to https"


def headroom(addresses: Iterable[str], config: Props) -> Iterator[str]:
    """Refuse pools with less room than asked for."""
    taken = [ip_address(text) for text in {*addresses}]
    for name, pool in config["pools"].items():
        networks = [ip_network(text) for text in pool["addresses"]]
        size = sum(network.num_addresses for network in networks)
        free = size - sum(any(address in network for network in networks) for address in taken)
        number, percent, _ = str(pool["free"]).partition("%")
        if free < (-(-size * int(number) // 100) if percent else int(number)):
            yield f"pool {name}: {free} of its {size} addresses stay free, less than {pool['free']}"


def listed(props: Props, name: str) -> list[str]:
    """Return the items of a property, which is a text with commas; it is missing where there are none."""
    return [item.strip() for item in str(props.get(name) or "").split(",") if item.strip()]


def texts(items: Iterable[str]) -> str:
    return ", ".join(items) or "nothing"


def allows(rule: str, port: str) -> bool:
    """Return whether a rule such as 443, 8000-8999 or 53/UDP allows a port such as 80/TCP."""
    numbers, _, protocol = rule.partition("/")
    number, _, own = port.partition("/")
    first, _, last = numbers.partition("-")
    return int(first) <= int(number) <= int(last or first) and protocol in {"", own}


def has(allowed: str, host: str) -> bool:
    """Return whether a hostname, or `*.test` for every one below it, is allowed."""
    return host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def of_balancer(
    name: str, text: str, judge: Callable[[str, Props, Props], Iterator[str]], properties: Props
) -> ResourceValidationPolicy:
    """Make a policy of one load balancer."""

    def validate(args: Any, report: Callable[[str], None]) -> None:  # noqa: ANN401 - the package has no types
        if args.resource_type == BALANCER:
            for sentence in judge(args.name, args.props, args.get_config()):
                report(f"{args.name}: {sentence}")

    schema = PolicyConfigSchema(properties=dict(properties), required=[key for key in properties if key == "allowed"])
    return ResourceValidationPolicy(name, text, validate, EnforcementLevel.DISABLED, schema if properties else None)


def of_pools(args: Any, report: Callable[[str], None]) -> None:  # noqa: ANN401 - as above
    """Judge what all load balancers have."""
    balancers = [resource for resource in args.resources if resource.resource_type == BALANCER]
    given = [address for balancer in balancers for address in listed(balancer.props, "addresses")]
    for sentence in headroom(given, args.get_config()):
        report(sentence)


PolicyPack(
    "local-lb",
    policies=[
        of_balancer(
            "address-changes", "Load balancers keep their addresses", address_changes, {"addresses": {"type": "object"}}
        ),
        of_balancer("source-ranges", "Ports name their clients", source_ranges, {}),
        of_balancer("ports", "Ports are among the allowed ones", ports, {"allowed": TEXTS}),
        StackValidationPolicy(
            "headroom",
            "Pools have room",
            of_pools,
            EnforcementLevel.DISABLED,
            PolicyConfigSchema(properties={"pools": {"type": "object"}}, required=["pools"]),
        ),
        of_balancer("hostnames", "Hostnames are among the allowed ones", hostnames, {"allowed": TEXTS}),
        of_balancer("tls", "No request is taken without TLS", tls, {}),
    ],
)
