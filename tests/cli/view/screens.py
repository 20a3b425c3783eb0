"""The terminal view in a test: what is on its screen after some keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual.app import App
from textual.pilot import Pilot

from locallb.cli.commands.view import StackActions
from locallb.cli.view.app import ViewApp
from locallb.cli.view.listing import Scene


def text_of(app: App[None]) -> str:
    """Return the lines on the screen."""
    return "".join(f"{strip.text.rstrip()}\n" for strip in app.screen._compositor.render_strips())


def shown(
    scene: Scene,
    *keys: str,
    size: tuple[int, int] = (120, 40),
    actions: StackActions | None = None,
    then: Callable[[ViewApp], object] = lambda _app: None,
) -> str:
    """Show a scene, press keys, and return what is on the screen."""

    async def run() -> str:
        app = ViewApp(scene, actions or StackActions(("locallb",)))
        async with app.run_test(size=size) as pilot:
            await press(pilot, keys)
            then(app)
            await pilot.pause()
            return text_of(app)

    return asyncio.run(run())


async def press(pilot: Pilot[None], keys: Sequence[str]) -> None:
    await pilot.pause()
    for key in keys:
        await pilot.press(key)
    await pilot.pause()
