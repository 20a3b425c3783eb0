"""The plan of two Services."""

from __future__ import annotations

from locallb.config.parsing import parse_settings
from locallb.model.identities import ContextName, Home
from locallb.model.snapshot import Access, Snapshot
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.support.objects import DEMO, node, parsed, service


def plan_of(sharing: str, *, live: bool = True, ports: object = None) -> Plan:
    """Plan two Services, the first one with these ports."""
    settings = parse_settings(
        {
            "sources": [{"kubernetes": {"name": "demo"}}],
            "pools": [{"name": "p", "addresses": ["127.77.0.0/28"]}],
            "proxies": {"mode": sharing},
        }
    )
    read = parsed(service("api", ports=ports) if ports else service("api"), service("web"), node())
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))} if live else {}
    return make_plan(Snapshot(Home("p", "s", "/p"), services=read.services, nodes=read.nodes, access=access), settings)
