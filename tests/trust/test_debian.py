"""The real system's store of a Debian, in a mount namespace of its own: believed by OpenSSL, and no longer."""

from __future__ import annotations

import shutil

import pytest

from tests.support.host import project

pytestmark = pytest.mark.slow
PREPARE = "mount -t tmpfs none /usr/local/share/ca-certificates; mount -t tmpfs none /etc/ssl/certs\n"
GATHERED = "find /etc/ssl/certs /usr/local/share/ca-certificates -type l -o -type f | sort"


@pytest.mark.skipif(not shutil.which("update-ca-certificates", path="/usr/sbin"), reason="this system isn't a Debian")
def test_programs_of_the_system_believe_it_until_it_is_taken_back() -> None:
    """With the distribution's own command; afterwards no file and no link of it is left."""
    with project(PREPARE) as made:
        verify = f"openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt {made.root}/ca/local-lb/ca/ca.crt"

        def ca(*terms: str) -> int:
            path = "/usr/bin:/bin:/usr/sbin:/sbin"
            return made.locallb("ca", *terms, XDG_DATA_HOME=str(made.root / "ca"), PATH=path).code

        made.space.shell("update-ca-certificates")
        before = made.space.shell(GATHERED)
        assert ca("create") == 0
        assert made.space.run("sh", "-c", verify).code != 0
        assert ca("trust", "--yes") == 0
        assert made.space.run("sh", "-c", verify).code == 0
        assert made.space.shell(GATHERED) != before
        assert ca("untrust", "--yes") == 0
        assert made.space.run("sh", "-c", verify).code != 0
        assert made.space.shell(GATHERED) == before
