"""Routes in `preview --against`: those of Ingresses that come and go."""

from __future__ import annotations

from tests.support.ingress_objects import JsonObject, backend, ingress, path, rule
from tests.support.repository import FORMATS, commit, report
from tests.support.stages import Stage


def test_routes_of_ingresses_show_as_they_come_and_go(repo: Stage) -> None:
    """In every format; one whose order alone is another is no route that comes or goes."""
    paths = [path("/", to=backend("web")), path("/api", to=backend("api"))]

    def write(*some: JsonObject) -> None:
        repo.write("ingress.yaml", ingress(rule(*some, host="shop.test"), namespace="n"))

    repo.configure(ingress={"class": "local"})
    commit(repo.root)
    write(paths[0])
    assert routes(repo) == {"before": [], "after": ["80: shop.test/* → n/web:8080"]}
    commit(repo.root)
    write(paths[1], {**paths[0], "path": "/new"})
    wanted = ["80: shop.test/api/* → n/api:8080", "80: shop.test/new/* → n/web:8080"]
    assert routes(repo) == {"before": ["80: shop.test/* → n/web:8080"], "after": sorted(wanted)}
    for how in FORMATS:
        assert "shop.test/new/" in repo.run("preview", "--against", "HEAD", "--format", how).out
    commit(repo.root)
    write({**paths[0], "path": "/new"}, paths[1])
    assert [each["what"] for each in served(repo)] == ["configuration"]
    (repo.manifests / "ingress.yaml").unlink()
    assert routes(repo) == {"before": sorted(wanted), "after": []}


def routes(repo: Stage) -> dict[str, list[str]]:
    (found,) = (each for each in served(repo) if each["what"] == "routes")
    return {side: sorted(found[side]) for side in ("before", "after")}


def served(repo: Stage) -> list[JsonObject]:
    """Return in what the address of all Ingresses differs."""
    (found,) = (each for each in report(repo)["services"] if each["kind"] == "ingressclasses")
    return list(found["differences"])
