"""A shop with an address of its own and a route of a Gateway. Nothing in it knows in which cluster it is.

In a cloud its load balancers give the addresses. On kind, and any other cluster of this host, local-lb does:
`locallb watch` beside this program, in any directory.
"""

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Namespace, Service
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

GATEWAY_API = "gateway.networking.k8s.io/v1"

gateway_class = pulumi.Config().require("gatewayClass")
namespace = Namespace("shop", metadata={"name": "cloud-shop"})
metadata: ObjectMetaArgsDict = {"namespace": namespace.metadata["name"], "labels": {"app": "web"}}
Deployment(
    "web",
    metadata=metadata,
    spec={
        "selector": {"match_labels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx:1.27", "ports": [{"container_port": 80}]}]},
        },
    },
)
web = Service(
    "web",
    metadata={**metadata, "name": "web"},
    spec={"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80, "target_port": 80}]},
)
gateway = CustomResource(
    "gateway",
    api_version=GATEWAY_API,
    kind="Gateway",
    metadata={**metadata, "name": "shop"},
    spec={
        "gatewayClassName": gateway_class,
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    },
)
CustomResource(
    "route",
    api_version=GATEWAY_API,
    kind="HTTPRoute",
    metadata={**metadata, "name": "shop"},
    spec={
        "parentRefs": [{"name": "shop"}],
        "hostnames": ["shop.example.com"],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
    },
    opts=pulumi.ResourceOptions(depends_on=[gateway, web]),
)
# Known once the cluster has given an address: pulumi-kubernetes waits for it. Clouds give an IP address or a name.
ingress = web.status.load_balancer.ingress[0]
pulumi.export("address", pulumi.Output.all(ingress.ip, ingress.hostname).apply(lambda both: both[0] or both[1]))
