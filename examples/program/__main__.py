"""A program that serves the shop and writes down where it is, once it is served."""

import json
from collections.abc import Mapping, Sequence

import pulumi

from locallb.program import LoadBalancers


class Notice(pulumi.ComponentResource):
    """A line about the shop, for whoever looks at the stack."""

    text: pulumi.Output[str]

    def __init__(
        self, name: str, urls: pulumi.Input[Sequence[str]], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("shop:index:Notice", name, {}, opts)
        self.text = pulumi.Output.from_input(urls).apply(lambda each: f"The shop is open: {', '.join(each)}")
        self.register_outputs({"text": self.text})


def first(urls: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the URLs of the shop's front door."""
    return urls.get("shop/web", ())


served = LoadBalancers(
    "shop",
    sources=[{"manifests": "../shop/manifests", "name": "shop"}],
    pools=[{"name": "shop", "addresses": ["127.77.1.0/27"]}],
    pins={"shop/web": ["127.77.1.1"]},
)
notice = Notice(
    "open",
    served.urls.apply(first),
    pulumi.ResourceOptions(depends_on=served.services["shop/web"]),
)
pulumi.export("notice", notice.text)
pulumi.export("addresses", served.addresses)
pulumi.export("ports", served.ports.apply(lambda ports: json.dumps(ports, sort_keys=True)))
