"""Which backups are kept: laws of the thinning, and what it never touches."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from locallb.engine.state.files import Files
from locallb.engine.store import NEWEST, Backups, retained

SECOND = 1_000_000_000
HOUR, DAY = 3600 * SECOND, 86400 * SECOND
MOMENTS = st.lists(st.integers(0, 40 * DAY), max_size=60, unique=True)


@given(MOMENTS, st.integers(0, 5 * DAY))
def test_the_newest_are_kept_and_nothing_is_made_up(times: list[int], later: int) -> None:
    """Whatever the time is."""
    wanted = retained(times, max(times, default=0) + later)
    assert wanted <= set(times)
    assert set(sorted(times)[-NEWEST:]) <= wanted


@given(MOMENTS)
def test_thinning_at_every_backup_gives_what_thinning_once_would(times: list[int]) -> None:
    """So how often updates come doesn't decide what is left."""
    remaining: set[int] = set()
    for time in sorted(times):
        remaining = set(retained(remaining | {time}, time))
    assert remaining == retained(times, max(times, default=0))


@given(st.integers(1, 3600), st.integers(DAY, 30 * DAY))
def test_a_loop_keeps_a_backup_of_each_of_the_last_hours_and_days(pace: int, now: int) -> None:
    """However fast it goes; and no more than 31."""
    times = range(max(0, now - 20 * DAY), now, max(pace, 60) * SECOND)
    wanted = retained(times, now)
    assert len(wanted) <= NEWEST + 12 + 14
    for span, count in ((HOUR, 11), (DAY, 13)):
        for ago in range(1, count):
            number = now // span - ago
            if any(time // span == number for time in (max(0, now - 20 * DAY), *times)):
                assert [time for time in wanted if time // span == number]


@given(MOMENTS, st.integers(0, 40 * DAY))
def test_thinning_backups_twice_removes_no_more(times: list[int], now: int) -> None:
    """Once is enough, also when the clock was put back."""
    wanted = retained(times, now)
    assert retained(wanted, now) == wanted


def test_only_backups_of_this_stack_are_removed(tmp_path: Path) -> None:
    """What was put aside for good, other stacks' files and whatever else lies there stay."""
    state = tmp_path / "state.json"
    state.write_text("{}")
    folder = tmp_path / "backups"
    folder.mkdir()
    others = [
        f"dev.{7 * HOUR + SECOND // 2}.journal",
        f"dev.{7 * HOUR + SECOND // 3}.broken",
        "dev.x.json",
        "de.1.json",
        "dev.1.json.bak",
        "devx1.json",
    ]
    for name in others:
        (folder / name).write_text("kept")
    backups = Backups(folder, "dev", Files())
    for number in range(30):
        backups.add(state, 7 * HOUR + number * SECOND)
    names = {path.name for path in folder.iterdir()}
    assert set(others) <= names
    assert len(names) == len(others) + NEWEST
    assert next(backups.newest_first()).name == f"dev.{7 * HOUR + 29 * SECOND}.json"


def test_directory_or_link_with_a_backups_name_stays(tmp_path: Path) -> None:
    """Only regular files are removed."""
    state, folder = tmp_path / "state.json", tmp_path / "backups"
    state.write_text("{}")
    (folder / "dev.1.json").mkdir(parents=True)
    (folder / "dev.2.json").symlink_to(tmp_path / "elsewhere")
    backups = Backups(folder, "dev", Files())
    for number in range(NEWEST + 3):
        backups.add(state, 7 * HOUR + number * SECOND)
    assert (folder / "dev.1.json").is_dir()
    assert (folder / "dev.2.json").is_symlink()
    assert len([*folder.iterdir()]) == 2 + NEWEST
