"""What keys of the terminal view do to a load balancer: the same as commands, by their functions or by running them.

Not here: which key does what (`app`).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from locallb.cli.commands.scripting import curl_terms, planned_ports
from locallb.cli.commands.status import show_in_browser, why_none
from locallb.cli.failures import Refused
from locallb.cli.service_output import Parts, PortLink, details, links
from locallb.cli.view.listing import Card, Rate, Scene, detail_parts, of_object
from locallb.model.texts import printable
from locallb.programs import in_foreground


class Actions(Struct, frozen=True):
    """Each is about a load balancer as it is in a scene; those that can't be done raise Refused or ClientError."""

    begin: tuple[str, ...]
    """The beginning of a command for the stack."""
    render: Callable[[str], str] = str
    """Completes commands in sentences."""
    execute: Callable[[Sequence[str]], int] = in_foreground

    def detail(self, scene: Scene, card: Card) -> Iterable[Parts]:
        """Return all about it, a line for each thing."""
        row = card.view.row
        (detail,) = details([row], scene.plan)
        found = [("url", link.url) for link in _links(scene, card)[:1]]
        with suppress(Refused):  # it serves no HTTP, or not yet
            found.append(("curl", self.curl(scene, card)))
        rate = scene.rates.get(row.key, Rate())
        return detail_parts(detail, rate, found, of_object(scene.records, row.key))

    def link(self, scene: Scene, card: Card) -> PortLink:
        """Return where it is found first."""
        if found := _links(scene, card):
            return found[0]
        raise Refused(why_none([card.view.row], 0))

    def curl(self, scene: Scene, card: Card) -> str:
        """Return a command for a request to it, as a shell reads it."""
        row = card.view.row
        return shlex.join(curl_terms(row, planned_ports(scene.plan, row), "", 0, ""))

    def open(self, scene: Scene, card: Card) -> str:
        """Open it in the user's browser; return what to say of that."""
        link = self.link(scene, card)
        return show_in_browser(link) or f"opened {link.url}"

    def run(self, terms: Sequence[str]) -> None:
        """Run a command in this terminal, and wait until the user has read what it printed."""
        sys.stdout.write(f"\n$ locallb {printable(shlex.join(terms))}\n")
        sys.stdout.flush()
        self.execute((*self.begin, *terms))
        sys.stdout.write("\nEnter goes back to the view. ")
        sys.stdout.flush()
        sys.stdin.readline()


def _links(scene: Scene, card: Card) -> Sequence[PortLink]:
    row = card.view.row
    return links(row, tuple(planned_ports(scene.plan, row).values()))
