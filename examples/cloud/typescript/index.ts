// A shop with an address of its own and a route of a Gateway. Nothing in it knows in which cluster it is.
//
// In a cloud its load balancers give the addresses. On kind, and any other cluster of this host, local-lb does:
// `locallb watch` beside this program, in any directory.

import * as k8s from "@pulumi/kubernetes";
import * as pulumi from "@pulumi/pulumi";

const gatewayApi = "gateway.networking.k8s.io/v1";

const gatewayClassName = new pulumi.Config().require("gatewayClass");
const namespace = new k8s.core.v1.Namespace("shop", { metadata: { name: "cloud-shop" } });
const labels = { app: "web" };
const metadata = { namespace: namespace.metadata.name, labels };
new k8s.apps.v1.Deployment("web", {
    metadata,
    spec: {
        selector: { matchLabels: labels },
        template: {
            metadata: { labels },
            spec: { containers: [{ name: "web", image: "nginx:1.27", ports: [{ containerPort: 80 }] }] },
        },
    },
});
const web = new k8s.core.v1.Service("web", {
    metadata: { ...metadata, name: "web" },
    spec: { type: "LoadBalancer", selector: labels, ports: [{ port: 80, targetPort: 80 }] },
});
const gateway = new k8s.apiextensions.CustomResource("gateway", {
    apiVersion: gatewayApi,
    kind: "Gateway",
    metadata: { ...metadata, name: "shop" },
    spec: { gatewayClassName, listeners: [{ name: "http", port: 80, protocol: "HTTP" }] },
});
new k8s.apiextensions.CustomResource(
    "route",
    {
        apiVersion: gatewayApi,
        kind: "HTTPRoute",
        metadata: { ...metadata, name: "shop" },
        spec: {
            parentRefs: [{ name: "shop" }],
            hostnames: ["shop.example.com"],
            rules: [{ backendRefs: [{ name: "web", port: 80 }] }],
        },
    },
    { dependsOn: [gateway, web] },
);
// Known once the cluster has given an address: pulumi-kubernetes waits for it. Clouds give an IP address or a name.
const ingress = web.status.loadBalancer.ingress[0];
export const address = pulumi.all([ingress.ip, ingress.hostname]).apply(([ip, hostname]) => ip || hostname);
