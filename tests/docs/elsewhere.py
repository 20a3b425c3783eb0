"""The commands of the pages that `test_pages` doesn't run: who does, or why nobody can."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """A command that isn't run here: why, and which file runs it; the file has these words."""

    why: str
    file: str
    terms: str


@dataclass(frozen=True)
class Never:
    """A command that no test runs: what it needs that no machine of tests has."""

    needs: str


CLI = "it needs the Pulumi CLI"
SYSTEMD = Never("a systemd of the user's own")
SERVICE = Elsewhere("it needs a systemd", "tests/cli/commands/test_service.py", '"service", "install"')
SCRIPT = Elsewhere("it needs a Service that serves", "tests/e2e/test_scripting.py", '"curl", "web/a/b')
SHOP = Elsewhere("it goes on until it is stopped", "tests/e2e/test_example.py", "examples/shop/backends.py")
INGRESS = Elsewhere("it serves at addresses that others may have", "tests/e2e/test_ingresses.py", "Pulumi.ingress.yaml")
CERTIFIED = Elsewhere(
    "it needs a cluster that serves", "tests/cluster/test_certificates.py", 'blocks("locallb ca export")'
)
HTTPS = Elsewhere(
    "it serves at addresses that others may have", "tests/e2e/test_local_certificates.py", "Pulumi.gateway.yaml"
)
TRUSTED = Elsewhere("it needs an authority", "tests/e2e/test_local_certificates.py", '"ca", "trust", "--yes"')
NOT_RUN_HERE: dict[str, Elsewhere | Never] = {
    "make up": Elsewhere("it installs", "tests/readme.sh", "\nmake up\n"),
    "make test": Elsewhere("it is what runs this", "tests/readme.sh", "\ntier test\n"),
    "make setup": Elsewhere("it installs, as part of `make up`", "Makefile", "\nup: setup "),
    "make watch": Elsewhere("it goes on until it is stopped", "tests/e2e/test_watch_operation.py", '"watch"'),
    "make watch STACK=mine": Elsewhere("the same, for a cluster", "tests/cluster/test_watch.py", "watch"),
    "make image": Elsewhere("its base comes from a registry", "tests/support/tool_image.py", "deploy/image/build"),
    "docker compose -f deploy/compose.yaml up -d": Elsewhere(
        "it needs an image", "tests/support/tool_image.py", '"up", "--detach"'
    ),
    "kind create cluster --name shop": Never("kind's own image, which comes from a registry"),
    "k3d cluster create shop --k3s-arg '--disable=servicelb@server:*' --k3s-arg '--disable=traefik@server:*'": Never(
        "k3s' own image, which comes from a registry"
    ),
    "locallb view": Elsewhere("it goes on until it is closed", "tests/e2e/test_view.py", '"view"'),
    "locallb page": Elsewhere("it needs a `watch` with a page", "tests/e2e/test_page.py", '"page", "--print"'),
    "locallb watch": Elsewhere("it goes on until it is stopped", "tests/packaging/test_tool.py", '"watch", "--plain"'),
    "kubectl apply -k deploy": Elsewhere("it needs a cluster", "tests/kubelets/in_cluster.py", '"apply", "-k"'),
    "kubectl -n kube-system exec deploy/local-lb -- python3 -m locallb status": Elsewhere(
        "it needs a cluster", "tests/kubelets/in_cluster.py", '"python3", "-m", "locallb", "status"'
    ),
    "kubectl get svc,nodes,endpointslices -A -o yaml > my-services/cluster.yaml": Elsewhere(
        "it needs a cluster", "tests/report/test_against.py", '"kubectl"'
    ),
    "dig +short @127.0.0.77 -p 5300 web.shop.demo.test": Elsewhere(
        "it needs a stack that serves", "tests/e2e/test_names.py", 'addresses(server, "web.n.c.test")'
    ),
    "python3 examples/shop/backends.py start": SHOP,
    "python3 examples/shop/backends.py stop": SHOP,
    "cp examples/ingress/Pulumi.ingress.yaml stacks/": INGRESS,
    ".venv/bin/locallb --stack ingress up": INGRESS,
    "curl -H 'Host: shop.test' http://$address:8080/api/v1": INGRESS,
    "address=$(.venv/bin/locallb --stack ingress status --json | python3 -c"
    " 'import json, sys; print(json.load(sys.stdin)[0][\"addresses\"][0])')": INGRESS,
    ".venv/bin/locallb --stack ingress destroy --yes": INGRESS,
    "locallb ca export my-ca.crt": Elsewhere(
        "it needs an authority", "tests/cli/host/test_ca.py", '"export", str(file)'
    ),
    "locallb ca trust": TRUSTED,
    "curl --cacert my-ca.crt --resolve shop.test:8443:$address https://shop.test:8443": CERTIFIED,
    "address=$(locallb status --json web | python3 -c"
    " 'import json, sys; print(json.load(sys.stdin)[0][\"addresses\"][0])')": CERTIFIED,
    "cp examples/gateway/Pulumi.gateway.yaml stacks/": HTTPS,
    ".venv/bin/locallb --stack gateway up": HTTPS,
    "address=$(.venv/bin/locallb --stack gateway status --json | python3 -c"
    " 'import json, sys; print(json.load(sys.stdin)[0][\"addresses\"][0])')": HTTPS,
    ".venv/bin/locallb ca export my-ca.crt": HTTPS,
    ".venv/bin/locallb --stack gateway destroy --yes": HTTPS,
    "locallb logs -f shop/web": Elsewhere(
        "it goes on until it is stopped", "tests/support/log_reading.py", '"logs", "-f"'
    ),
    ".venv/bin/locallb --stack gardener watch": Elsewhere(
        "it needs Gardener's clusters", "tests/kubelets/test_gardener.py", 'watching(play, "--plain")'
    ),
    ".venv/bin/locallb --stack gardener status": Never("a seed of Gardener's that goes on beside it"),
    "pulumi preview --json > preview.json": Elsewhere(
        CLI, "tests/report/test_pulumi_preview.py", "pulumi preview --json"
    ),
    "pulumi stack init dev": Elsewhere(CLI, "tests/support/official_cli.py", '"stack", "init"'),
    "pulumi config --stack dev": Never("the Pulumi CLI, and it only shows what the file says"),
    "pulumi preview --stack dev": Elsewhere(CLI, "tests/support/official_cli.py", '"preview"'),
    "pulumi up --stack dev": Elsewhere(CLI, "tests/e2e/test_official_cli.py", '"up"'),
    "pulumi refresh --stack dev": Elsewhere(CLI, "tests/e2e/test_official_cli.py", '"refresh"'),
    "pulumi destroy --stack dev": Elsewhere(CLI, "tests/e2e/test_official_cli.py", '"destroy"'),
    "locallb service install": SERVICE,
    "locallb service status": SERVICE,
    "locallb service stop": SERVICE,
    "locallb service start": SERVICE,
    "locallb service remove": SERVICE,
    "loginctl enable-linger": SYSTEMD,
    "locallb wait shop/web --timeout 5m": SCRIPT,
    "locallb url shop/web": SCRIPT,
    "locallb curl shop/web/healthz -- --fail --silent": SCRIPT,
    "locallb explain http://shop.test:8080/api/v1/cart": Elsewhere(
        "it needs a Gateway", "tests/cli/commands/test_explain.py", '"explain", URL'
    ),
    "locallb preview --against origin/main --requests requests.txt --format markdown": Elsewhere(
        "it needs a file of requests", "tests/report/test_requests.py", '"--requests"'
    ),
}
