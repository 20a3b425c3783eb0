"""The program of the recordings: load balancers and proxies with their children, from a specification."""

from typing import Any

import pulumi

from locallb.engine.state.urns import root_urn
from tests.support.engine import Inputs, Thing, output

ALPHA: Inputs = {"address": "127.77.0.1", "port": 80, "digest": "d1"}
BETA: Inputs = {"address": "127.77.0.2", "port": 443, "digest": "d1"}
BOTH: Inputs = {"balancers": {"alpha": ALPHA, "beta": BETA}}
ONE: Inputs = {"balancers": {"alpha": ALPHA}}


def spec(**changes: Inputs) -> Inputs:
    """Return the specification of two balancers, with changes of alpha."""
    return {"balancers": {"alpha": ALPHA | changes.get("alpha", {}), "beta": BETA}}


def roots(*names: str) -> list[str]:
    kinds = ("LoadBalancer", "Proxy")
    return [root_urn("local-lb", "dev", f"locallb:index:{kind}", name) for kind in kinds for name in names]


def _options(spec: Inputs, kind: str, name: str, **more: Any) -> pulumi.ResourceOptions:  # noqa: ANN401 resource options
    return pulumi.ResourceOptions(**more, **spec.get("options", {}).get(f"{kind}::{name}", {}))


class Proxy(pulumi.ComponentResource):
    """A proxy: its configuration and its process."""

    def __init__(self, spec: Inputs, name: str, claim: object, binary: str, listeners: list[Inputs]) -> None:
        super().__init__("locallb:index:Proxy", name, {"listeners": listeners}, _options(spec, "Proxy", name))
        below = _options(spec, "ProxyConfig", name, parent=self)
        self.config = Thing("ProxyConfig", name, {"claim": claim, "listeners": listeners}, below)
        below = _options(spec, "EnvoyProcess", name, parent=self, depends_on=[self.config])
        self.process = Thing("EnvoyProcess", name, {"binary": binary, "config": output(self.config, "version")}, below)
        self.register_outputs({"pid": output(self.process, "pid")})


class LoadBalancer(pulumi.ComponentResource):
    """A load balancer: its address, what waits for the proxy, and its status."""

    def __init__(self, spec: Inputs, name: str, given: Inputs) -> None:
        super().__init__(
            "locallb:index:LoadBalancer", name, {"digest": given["digest"]}, _options(spec, "LoadBalancer", name)
        )
        tags = given.get("tags") or {"zone": ["local"], "weight": 1, "on": True, "none": None}
        below = _options(spec, "LoopbackAddress", name, parent=self)
        self.address = Thing("LoopbackAddress", name, {"address": given["address"], "tags": tags}, below)
        claim = output(self.address, "claim")
        port = given["port"]
        self.proxy = Proxy(spec, name, claim, given.get("binary", "envoy-1"), [{"port": port, "protocol": "TCP"}])
        below = _options(spec, "Reachable", name, parent=self, depends_on=[self.proxy])
        self.reachable = Thing("Reachable", name, {"address": claim, "port": port}, below)
        below = _options(spec, "ServiceStatus", name, parent=self, depends_on=[self.reachable])
        version = output(self.proxy.config, "version")
        status = {"ip": given["address"], "claim": claim, "version": version, "ports": [port]}
        self.status = Thing("ServiceStatus", name, status, below)
        self.register_outputs({"ip": given["address"], "claim": claim})


def declare(spec: Inputs) -> None:
    balancers = {name: LoadBalancer(spec, name, given) for name, given in spec["balancers"].items()}
    for key, value in spec.get("exports", {}).items():
        pulumi.export(key, value)
    pulumi.export("addresses", {name: output(balancer.address, "claim") for name, balancer in balancers.items()})
    if spec.get("duplicate"):
        Thing("LoopbackAddress", spec["duplicate"], {"address": "127.77.0.1"})
        Thing("LoopbackAddress", spec["duplicate"], {"address": "127.77.0.1"})
    if spec.get("secret_input"):
        Thing("LoopbackAddress", "secret", {"address": pulumi.Output.secret(spec["secret_input"])})
    if spec.get("explicit_provider"):
        given = pulumi.ProviderResource("locallb", "mine", {"region": "here"})
        Thing("LoopbackAddress", "explicit", {"address": "127.77.0.4"}, pulumi.ResourceOptions(provider=given))
    if spec.get("raise"):
        raise RuntimeError(spec["raise"])
