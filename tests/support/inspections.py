"""A host of which the doctor has nothing to say."""

from __future__ import annotations

from ipaddress import ip_address

from locallb.config.settings import Pool
from locallb.host.doctor import HostInspection, ObservedProxy, ProxyLimits
from locallb.model.ranges import AddressRange
from locallb.model.snapshot import HostFacts

PLENTY = ProxyLimits(500, 8192, 1 << 34, 10_000, 200, 65_536)
POOL = Pool("p", (AddressRange(ip_address("127.77.0.0"), ip_address("127.77.0.31")),))
GOOD = HostInspection(
    python=(3, 12), user="me", envoy="1.40.0", envoy_problem="", host=HostFacts(), limits=PLENTY, pools=(POOL,),
    sources=1, services=2, proxies=(ObservedProxy("c/n/a", alive=True, version="1.40.0"),), ledger="/l", claims=2,
    state="9 resources in /s",
)  # fmt: skip
