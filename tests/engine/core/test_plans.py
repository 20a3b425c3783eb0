"""The core brings plans to the state that today's engine gives them: goldens of the planner, by the real components."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental.provider import Provider

from locallb.components.stack import declare
from locallb.desired import desired
from locallb.engine.core.desired_index import DesiredIndex
from locallb.engine.core.lanes import Parties
from locallb.engine.core.session import open_core
from locallb.engine.engine import Engine
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import STACK_TYPE
from locallb.engine.store import Store
from locallb.planning.planned import Plan
from tests.engine.core.support import SimulatedExecutor
from tests.support.desired_cases import plan_of
from tests.support.engine import make_project
from tests.support.plan_cases import CASES as GOLDEN

CASES = (
    *GOLDEN,
    "Gateways; podman, shared",
    "certificates; own",
    "held; spares",
    "plain; docker, published",
    "plain; routes in containers",
    "plain; zones",
    "withdrawn",
)
COMPUTED = {"pid": 4711, "started": "77", "bootstrap": "b00t", "directory": "/proxies/p", "container": "cafe"}


class Differing:
    """What new inputs change: nothing is replaced."""

    def __init__(self, olds: Mapping[str, Any], news: Mapping[str, Any]) -> None:
        existing = {name: value for name, value in olds.items() if name not in COMPUTED or name in news}
        self.changed = frozenset(name for name in {*existing, *news} if existing.get(name) != news.get(name))
        self.replacing = frozenset[str]()
        self.delete_first = False


class Echo:
    """A provider that makes everything and touches nothing."""

    def check(self, _token: str, _news: Mapping[str, Any]) -> list[tuple[str, str]]:
        return []

    def diff(self, _token: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Differing:
        return Differing(olds, news)

    def create(self, token: str, news: Mapping[str, Any], *, preview: bool) -> tuple[str, dict[str, Any]]:
        del preview
        return f"id of {token}", {**COMPUTED, **news}

    def update(
        self, _token: str, _olds: Mapping[str, Any], news: Mapping[str, Any], *, preview: bool
    ) -> dict[str, Any]:
        del preview
        return {**COMPUTED, **news}

    def delete(self, _token: str, _properties: Mapping[str, Any]) -> None:
        """Remove."""


class EchoProvider(Provider):
    """The same as the engines are given it."""

    in_place = True

    def __init__(self) -> None:
        self.direct = Echo()


def lane_of(resource: ResourceState) -> str:
    return resource.type


class Bench:
    """A stack that one of the engines updates."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder)
        self.store = Store(self.project.backend, self.project.name, "dev")
        self.sources = {"locallb": EchoProvider(), "docker": EchoProvider()}

    def by_the_engine(self, plan: Plan) -> None:
        result = Engine(self.project, "dev", self.sources, store=self.store).up(lambda: declare(plan))
        assert result.ok, result.diagnostics

    def by_the_core(self, plan: Plan) -> None:
        with open_core(
            self.store,
            project=self.project.name,
            stack="dev",
            sources=self.sources,
            parties=Parties(lane_of),
            executor=SimulatedExecutor(),
            wanted=DesiredIndex(self.project.name, "dev", {"docker": version("pulumi-docker")}),
        ) as core:
            core.desire({group.root: group for group in desired(plan).groups})
            core.run(lambda: core.is_settled, 300)
            assert core.is_settled, (core.failures, core.waiting)

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the state, without outputs of the Stack, times, and the order of what has none."""
        return {resource.urn: _plain(resource) for resource in self.store.peek().in_order()}


def _plain(resource: ResourceState) -> dict[str, Any]:
    plain: dict[str, Any] = dict(resource.as_json())
    for name in ("created", "modified"):
        plain.pop(name, None)
    if resource.type == STACK_TYPE:
        plain.pop("outputs", None)
    if "providers" in resource.type:
        plain["id"] = "some"
    plain["dependencies"] = sorted(resource.dependencies)
    plain["propertyDependencies"] = {
        name: sorted(urns) for name, urns in (resource.property_dependencies or {}).items() if urns
    }
    plain["provider"] = resource.provider.rpartition("::")[0]
    return plain


@pytest.mark.parametrize("case", CASES)
def test_a_plan_comes_to_the_state_that_the_engine_gives_it(case: str, tmp_path: Path) -> None:
    """From nothing; and the engine then finds nothing to do."""
    plan = plan_of(case)
    engine, core = Bench(tmp_path / "engine"), Bench(tmp_path / "core")
    engine.by_the_engine(plan)
    core.by_the_core(plan)
    assert core.state() == engine.state()
    before = core.state()
    core.by_the_engine(plan)
    assert core.state() == before


def test_plans_one_after_the_other_come_to_the_state_of_the_last(tmp_path: Path) -> None:
    """By the core and the engine in turn, on one state."""
    both = Bench(tmp_path / "both")
    for number, case in enumerate((*CASES[::2], *CASES[::3])):
        plan = plan_of(case)
        (both.by_the_core if number % 2 else both.by_the_engine)(plan)
        alone = Bench(tmp_path / str(number))
        alone.by_the_engine(plan)
        assert both.state() == alone.state(), case
