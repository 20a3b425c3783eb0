"""The stack as a whole in the terminal view: sources, pools, and how the `watch` of this process gets on. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from locallb.cli.service_output import Parts
from locallb.cli.view.listing import Rate, Scene, cards
from locallb.cli.watching.board import Board, View
from locallb.cli.watching.log import LogRecord, clock
from locallb.cli.watching.published import summary
from locallb.config.settings import Settings
from locallb.model.identities import ObjectKey
from locallb.report.changes import PoolRoom, rooms_of
from locallb.report.wording import LONGEST_NAME, visible

MAX_PARTS = 6
"""Sources and pools that are named."""
NOTHING_YET = "There is no Service of type LoadBalancer yet. New ones appear here by themselves."


def source_line(settings: Settings, stale: Mapping[str, float] | None) -> Parts:
    """Name the sources, and since when one counts as last read; where that isn't known, no state."""
    parts: list[tuple[str, str]] = [("sources  ", "dim")]
    for source in settings.sources[:MAX_PARTS]:
        name = visible(str(source.cluster), LONGEST_NAME)
        if stale is None:
            parts.append((f"{name}  ", ""))
        elif since := stale.get(source.cluster):
            parts.append((f"{name} stale since {clock(since)[:-4]}  ", "yellow"))
        else:
            parts += [(f"{name} ", ""), ("ok  ", "green")]
    more = len(settings.sources) - MAX_PARTS
    return (*parts, (f"and {more} more", "")) if more > 0 else tuple(parts)


def pool_line(found: Sequence[PoolRoom], proxies: int, answering: int | None) -> Parts:
    """Write what is used and free of each pool, and how many proxies there are."""
    parts: list[tuple[str, str]] = [("pools    ", "dim")]
    for room in found[:MAX_PARTS]:
        rest = f", {room.unavailable} unavailable" if room.unavailable else ""
        usage = f"{room.used} of {room.size} used, {room.free} free{rest}  "
        parts += [(f"{visible(room.pool, LONGEST_NAME)} {room.family} ", ""), (usage, "" if room.free else "yellow")]
    answers = "" if answering is None else f", {answering} answer"
    parts.append((f"proxies {proxies}{answers}", "" if answering in {None, proxies} else "yellow"))
    return tuple(parts)


def watched(
    before: Scene, board: Board, views: Iterable[View], records: Sequence[LogRecord], rates: Mapping[ObjectKey, Rate]
) -> Scene:
    """Return the scene of a running watch; unchanged texts are those of the scene before, as are rooms of pools."""
    planned = board.planned
    made = cards(views, before.cards)
    scene = replace(
        before,
        cards=made,
        state=_progress(board),
        warnings=tuple(_warnings(board, {card.view.row.key for card in made} if board.failures else ())),
        records=tuple(records),
        failures=board.failures,
        rates=rates,
    )
    if planned is None:
        return scene
    if planned.plan is not before.plan and planned.snapshot and planned.settings:
        scene = replace(scene, rooms=rooms_of(planned.plan, planned.snapshot, planned.settings))
    answering = sum(answer is not None for answer in board.observed.values())
    lines = [source_line(planned.settings, board.stale)] if planned.settings else []
    lines.append(pool_line(scene.rooms, len(planned.plan.proxies), answering))
    return replace(scene, plan=planned.plan, overview=tuple(lines), empty=planned.plan.left_out or (NOTHING_YET,))


def _progress(board: Board) -> str:
    if board.planned is None:
        return "reading the sources"
    doing = f"{board.open} to do" if board.open else ""
    since = f"in sync {clock(board.converged)[:-4]}" if board.converged else ""
    waiting = f"{board.waiting} tried again later" if board.waiting else ""
    return ", ".join(filter(None, (since, doing, waiting))) or "updating"


def _warnings(board: Board, shown: Container[ObjectKey]) -> Iterator[str]:
    """Yield what is in the way of the loop; what is in that of a load balancer that is `shown`, its line says."""
    if board.failure:
        yield f"failing: {board.failure}"
    if planned := board.planned:
        yield from planned.complaints
    for delay in board.delays:
        yield delay.sentence(f"since {clock(delay.since)[:-4]}")
    yield from summary(each for each in board.failures.values() if each.key not in shown)
