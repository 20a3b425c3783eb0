"""The command `gc`: what it removes is a leftover, also while an update of the stack is under way."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from locallb.cli.session import Session
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import End, Put
from locallb.engine.state.values import Properties
from locallb.engine.store import Store
from locallb.ledger.ledger import Ledger
from locallb.leftovers import Leftover, leftovers
from locallb.model.desired import ADDRESS, DNS_NAME, SERVICE_CLAIM
from locallb.model.identities import ClusterName, ContextName, Home, ObjectKey, Owner
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields
from locallb.orphans import OrphanedService
from locallb.storage import paths
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

pytestmark = pytest.mark.usefixtures("no_engines")


@pytest.fixture
def remaining() -> Iterator[Stage]:
    """Return a stack, of whose ledger the state knows nothing."""
    with stage() as made:
        made.write("s.yaml", node(), service("web", port(8080, 30000)))
        owner = Owner(Session.open(made.root, "dev").home, ObjectKey(ClusterName("c"), "n", "web"))
        Ledger(paths.ledger_directory()).claim(ip_address(made.at(30)), owner)
        yield made


def claimed() -> int:
    return len(Ledger(paths.ledger_directory()).claims())


def test_gc_removes_nothing_while_the_stack_is_updated(remaining: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource of a running update isn't in the state yet: it may be listed, but must not be removed."""
    monkeypatch.setattr("locallb.cli.session.PAUSE", 0.0)
    session = Session.open(remaining.root, "dev")
    with session.alone(print):
        patient = Session.alone
        monkeypatch.setattr(Session, "alone", lambda self, notice: patient(self, notice, 0.0))
        done = remaining.run("gc", "--yes")
        assert (done.code, done.out) == (1, "")
        assert "the stack is locked since" in done.err
        assert remaining.run("gc", "--json").json
    assert claimed() == 1
    assert remaining.run("gc", "--yes").code == 0
    assert claimed() == 0


def test_resources_made_by_a_concurrent_update_are_no_leftovers(
    remaining: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look that counts is the one that is taken while nobody updates the stack."""
    checks: list[int] = []

    def inspect(home: Home, *_existing: Collection[str]) -> tuple[Leftover, ...]:
        found = () if checks else leftovers(home, (), ())
        checks.append(len(found))
        return found

    monkeypatch.setattr("locallb.cli.commands.leftovers.leftovers", inspect)
    assert remaining.run("gc", "--yes").out == "Nothing was left behind.\n"
    assert (checks, claimed()) == ([1, 0], 1)


def test_no_cluster_is_asked_while_others_are_kept_from_the_stack(
    remaining: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs holds up nobody; what the state knows of it by then is no leftover."""
    owner = Owner(Session.open(remaining.root, "dev").home, ObjectKey(ClusterName("c"), "n", "web"))
    found, let_go = OrphanedService(owner, Access("c", ContextName("none"))), list[OrphanedService]()

    def ask(session: Session, claimed: set[str]) -> tuple[OrphanedService, ...]:
        with session.alone(print, 0.0):
            return () if str(owner.service) in claimed else (found,)

    def note(service: OrphanedService) -> None:
        let_go.append(service)

    monkeypatch.setattr("locallb.cli.commands.leftovers._services", ask)
    monkeypatch.setattr(OrphanedService, "let_go", note)
    assert remaining.run("gc", "--yes").code == 0
    assert let_go == [found]


def test_gc_keeps_what_an_update_took_over_while_leftovers_were_listed(
    remaining: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Service and the name are in the state by the time gc holds the stack."""
    key = ObjectKey(ClusterName("c"), "n", "web")
    found = OrphanedService(Owner(Session.open(remaining.root, "dev").home, key), Access("c", ContextName("none")))
    name = SimpleNamespace(name="web.test", let_go=lambda: pytest.fail("it was let go"))
    claimed = (
        ResourceState("urn:claim", SERVICE_CLAIM, custom=True, id=str(key)),
        ResourceState("urn:name", DNS_NAME, custom=True, id="1", inputs={"name": name.name}),
    )
    requested: list[str] = []

    def ask(session: Session, _existing: set[str]) -> tuple[OrphanedService, ...]:
        requested.append(session.stack)
        return (found,)

    def state(_session: Session) -> tuple[tuple[ResourceState, ...], tuple[ResourceState, ...]]:
        return claimed if requested else (), ()

    monkeypatch.setattr("locallb.cli.commands.leftovers._services", ask)
    monkeypatch.setattr("locallb.cli.commands.leftovers._names", lambda *_: (name,))
    monkeypatch.setattr(Session, "resources_and_under_way", state)
    monkeypatch.setattr(OrphanedService, "let_go", lambda _self: pytest.fail("it was let go"))
    assert remaining.run("gc", "--yes").code == 0
    assert requested == ["dev"]


def test_gc_keeps_a_claim_handed_over_by_an_interrupted_update(remaining: Stage) -> None:
    """The project was moved: the ledger names the new owner, the state the old one until the next update."""
    session = Session.open(remaining.root, "dev")
    (claim,) = Ledger(paths.ledger_directory()).claims()
    moved = replace(claim.owner, home=session.home._replace(root="/where/it/was"))
    urn = f"urn:pulumi:dev::local-lb::{ADDRESS}::c/n/web"
    inputs: Properties = {"address": claim.name, "owner": dict(owner_fields(moved)), "sharing": ""}
    kind = "pulumi:providers:locallb"
    provider = ResourceState(f"urn:pulumi:dev::local-lb::{kind}::default", kind, custom=True, id="1")
    before = ResourceState(
        urn, ADDRESS, custom=True, id=claim.name, inputs=inputs, provider=f"{provider.urn}::{provider.id}"
    )
    after = replace(before, id="", inputs={**inputs, "owner": dict(owner_fields(claim.owner))})
    store = Store(session.project.backend, session.project.name, "dev")
    with suppress(KeyboardInterrupt), store.session(print) as recorder:
        recorder.apply(End(recorder.begin(Pending("creating", before))), Put(provider), Put(before))
        recorder.begin(Pending("updating", after))
        raise KeyboardInterrupt
    session.settle()
    done = remaining.run("gc", "--yes")
    assert (done.out, done.err) == ("Nothing was left behind.\n", "")
    assert claimed() == 1
    assert "left by a lost state" not in remaining.run("doctor").out
