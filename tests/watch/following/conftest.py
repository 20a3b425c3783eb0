"""What tests of followed clusters share: an API, and certificates that Secrets of it have."""

from __future__ import annotations

import pytest

from tests.support.certificates import Authority, Pair
from tests.support.fake_api import api

__all__ = ["api"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    return authority.sign("DNS:a.test"), authority.sign("DNS:a.test")
