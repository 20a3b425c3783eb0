"""Pages, examples and units: inside of an installed wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """Return where a file or directory of the checkout is, as `docs` or `examples/ci`."""
    inside = _PACKAGE / "shipped"
    return (inside if inside.is_dir() else _PACKAGE.parent) / name
