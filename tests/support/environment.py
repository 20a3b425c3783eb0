"""Variables of the environment for a while.

Not `patch.dict`, which empties the environment for a moment: loops in threads of the tests go on meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def retained(names: Collection[str]) -> Iterator[None]:
    """Leave these variables as they were, whatever is done to them."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def lent(variables: Mapping[str, str]) -> Iterator[None]:
    with retained(variables):
        os.environ.update(variables)
        yield
