"""What the table of faults asks of each: the doctor tells it, `up` tells or repairs it, its neighbour runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Done, Stage, stage

VICTIM, NEIGHBOUR = "n/victim", "n/neighbour"


@dataclass(frozen=True)
class Doctor:
    """What the doctor said."""

    code: int
    problems: str
    """Topics and sentences of all warnings and problems."""


@dataclass
class Pair:
    """A stack of two Services, deployed: one that a fault befalls and one that must not notice."""

    stage: Stage
    address: str
    neighbour: str
    neighbour_pid: int

    def doctor(self) -> Doctor:
        """Ask the doctor; what this user may do is no fault of the stack."""
        done = self.stage.run("doctor", "--json")
        levels = {"warning", "problem"}
        findings = [
            finding for finding in done.json["findings"] if finding["level"] in levels and finding["topic"] != "rights"
        ]
        return Doctor(
            done.code,
            "\n".join(f"{finding['topic']}: {finding['text']} -> {finding['remedy']}" for finding in findings),
        )

    def up(self) -> Done:
        """Run `up`, whatever comes of it."""
        done = self.stage.run("up", "--yes")
        assert "Traceback" not in done.out + done.err
        return done

    def serves(self) -> bool:
        """Return whether the victim answers at its address, which it still has."""
        assert self.stage.addresses()[VICTIM] == self.address
        return ask(self.address, 8080) == "victim: hello"

    def neighbour_is_undisturbed(self) -> bool:
        """Return whether the neighbour has the same address and process, and answers."""
        same = self.stage.addresses()[NEIGHBOUR] == self.neighbour
        return (
            same
            and self.stage.pids()[NEIGHBOUR] == self.neighbour_pid
            and ask(self.neighbour, 8080) == "neighbour: hello"
        )


@contextmanager
def deployed(backend: Callable[..., Backend]) -> Iterator[Pair]:
    with stage() as made:
        made.write("node.yaml", node())
        for name in ("victim", "neighbour"):
            made.write(f"{name}.yaml", service(name, port(8080, backend(name).port)))
        made.up()
        at = made.addresses()
        pair = Pair(made, at[VICTIM], at[NEIGHBOUR], made.pids()[NEIGHBOUR])
        assert pair.doctor().code == 0, pair.doctor()
        yield pair
