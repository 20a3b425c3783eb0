"""Manifests that mean harm: bounded time and memory, one clear sentence each, nothing written outside its place."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

LONG = "x" * 65_536
NAMES = {
    "parent": "../../../etc/passwd",
    "absolute": "/etc/passwd",
    "dots": "..",
    "newline": "a\nb",
    "escape": "\x1b[2J\x1b[31mred",
    "nul": "a\u2400b",
    "right to left": "a\u202eb",
    "unicode": "käse-日本-🧀",
    "long": LONG,
    "empty": "",
    "urn": "a::b$c",
    "format": "%s%n{0}${x}`id`$(id)",
}
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 50)}]}}\n" for n in range(1, 9))
TEXTS = {
    "bomb": BOMB,
    "merges": MERGES,
    "itself": "a: &a [*a]\n",
    "deep": "[" * 100_000,
    "deep objects": "".join("{a: " for _ in range(50_000)),
    "python": "!!python/object/apply:os.system ['touch llb-owned']\n",
    "numbers": f"kind: Service\nmetadata: {{name: {'9' * 100_000}}}\n",
    "anchors": "".join(f"- &a{n} x\n" for n in range(50_000)),
    "binary": "\x00\x01\x02",
    "sexagesimal": "kind: 190:20:30\n",
    "tag": "!<tag:example.org,2000:x> y\n",
    "directive": "%YAML 9.9\n---\n{}\n",
}
QUICK, ROOMY = 15.0, 600
"""Seconds and MiB that a hostile file of a few hundred KiB may cost, the interpreter and a busy machine included."""


@pytest.fixture
def backend() -> Iterator[Callable[..., Backend]]:
    """Make backends that are closed at the end."""
    made: list[Backend] = []

    def make(name: str) -> Backend:
        made.append(Backend(name))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def good(backend: Callable[..., Backend]) -> Iterator[Stage]:
    """Return a stack with one good Service, in a place where nobody else writes."""
    with tempfile.TemporaryDirectory(prefix="llb-", dir="/tmp") as place, stage(place) as made:
        made.write("good.yaml", node(), service("good", port(8080, backend("good").port)))
        yield made


def outside(root: Path) -> set[str]:
    """List what lies beside the project and in the places that the names point to."""
    return {str(path) for place in (root.parent, Path("/etc")) for path in place.iterdir()}


def assert_harmless(terms: str) -> None:
    """Check what was printed: no traceback, nothing that a terminal acts on, and of a long value its beginning."""
    assert "Traceback" not in terms
    assert all(char.isprintable() or char == "\n" for char in terms), [
        char for char in terms if not char.isprintable()
    ][:5]
    assert max(map(len, terms.splitlines()), default=0) < 2_000


@pytest.mark.envoy
@pytest.mark.parametrize("field", ["name", "namespace", "port name", "class", "request"])
def test_hostile_names_are_rejected_and_written_nowhere(good: Stage, field: str) -> None:
    """Each with a short printable sentence; the good Service serves; directories are named by digests."""
    before = outside(good.root)
    hostile = []
    for number, value in enumerate(NAMES.values()):
        manifest = service(f"bad{number}", port(8080, 30_000))
        match field:
            case "port name":
                manifest["spec"]["ports"][0]["name"] = value
            case "class":
                manifest["spec"]["loadBalancerClass"] = value
            case "request":
                manifest["spec"]["loadBalancerIP"] = value
            case _:
                manifest["metadata"][field] = value
        hostile.append(manifest)
    good.write("hostile.yaml", *hostile)
    done = good.run("up", "--yes")
    assert done.code in {0, 1}
    assert_harmless(done.out + done.err)
    assert_harmless(good.run("status").out)
    assert ask(good.addresses()["n/good"], 8080) == "good: hello"
    assert outside(good.root) == before
    names = {path.name for path in (good.state_home / "proxies").iterdir()}
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in names)


@pytest.mark.envoy
def test_hostile_annotations_and_labels_are_only_values(good: Stage) -> None:
    """They may hold anything; the Service serves, and none of it is printed or becomes a path."""
    values = {f"k{number}": value for number, value in enumerate(NAMES.values())}
    text = (good.manifests / "good.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    documents[1]["metadata"]["annotations"] = values
    documents[1]["metadata"]["labels"] = values
    good.write("good.yaml", *documents)
    done = good.up()
    assert_harmless(done.out + done.err)
    assert ask(good.addresses()["n/good"], 8080) == "good: hello"


READ = """
import resource, sys
from pathlib import Path
from locallb.sources.entries import ManifestsSource
from locallb.sources import SourceError
from locallb.sources.manifests import read_manifests
place = Path(sys.argv[1])
try:
    read = read_manifests(ManifestsSource("c", str(place)), place, place / "r", held_services=set(), keep=False)
    print(len(read.parsed.services), *read.stale, *read.parsed.notices[:3])
except SourceError as error:
    print("refused:", error)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""


def read(directory: Path) -> tuple[str, float, int]:
    """Read a directory of manifests in a process of its own: what it said, its seconds on a processor, its MiB."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(directory)], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    *stated, used = done.stdout.strip().splitlines()
    seconds, peak = used.split()
    return "\n".join(stated), float(seconds), int(peak)


@pytest.mark.parametrize(
    ("name", "ending"),
    [*((name, "yaml") for name in TEXTS), *((name, "json") for name in ("deep", "numbers", "binary"))],
)
def test_hostile_files_cost_little_and_are_reported(tmp_path: Path, name: str, ending: str) -> None:
    """Bombs, aliases of themselves, depth, tags that run code: refused or harmless, in bounded time and memory."""
    (tmp_path / f"hostile.{ending}").write_text(TEXTS[name])
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(service("good", port(8080, 30_000))))
    stated, seconds, peak = read(tmp_path)
    assert stated.startswith("1"), stated
    assert_harmless(stated)
    assert seconds < QUICK
    assert peak < ROOMY
    assert not Path("llb-owned").exists()


@pytest.mark.slow
def test_a_million_small_documents_are_read_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """Linear, not worse; other kinds are passed over."""
    (tmp_path / "many.yaml").write_text("---\nkind: X\n" * 1_000_000)
    stated, seconds, peak = read(tmp_path)
    assert stated.startswith("0")
    assert seconds < 90
    assert peak < 1_024


def test_cost_grows_with_the_number_of_documents_and_no_faster(tmp_path: Path) -> None:
    """Four times as many Services cost about four times as much."""
    costs = []
    for count in (500, 2_000):
        made = [yaml.safe_dump(service(f"s{number}", port(80, 30_000))) for number in range(count)]
        (tmp_path / "many.yaml").write_text("---\n".join(made))
        stated, seconds, _ = read(tmp_path)
        assert stated.startswith(str(count))
        costs.append(seconds)
    assert costs[1] < 10 * costs[0]
