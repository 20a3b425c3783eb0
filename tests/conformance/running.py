"""Runs the suite beside a watch: all of it, and once more, alone, each test that failed.

Not here: what is read from its output (`results`), and what the cluster has before (`cluster`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from locallb import __version__
from tests.conformance.ready import suite
from tests.conformance.results import ROOT, Run, end, lines, meanwhile, named, until_crash
from tests.support.conformance_cluster import CLASS, namespaces, until_accepted, until_gone
from tests.support.kubelet_cluster import Cluster
from tests.support.stages import Stage
from tests.support.watching import Watch, watching

PROFILES = ("GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-UDP")
MINUTES = 60
"""How long all of it may take."""
_LATE = 124
"""The exit code of a suite that was ended: as `timeout` has it."""
_OF_US = {
    "organization": "local-lb",
    "project": "local-lb",
    "url": "https://local-lb.dev",
    "version": f"v{__version__}",
    "contact": "https://local-lb.dev",
}


@dataclass(frozen=True)
class Suite:
    """The suite, what it is run against, and where what is said is kept."""

    cluster: Cluster
    play: Stage
    args: argparse.Namespace

    def judge(self) -> int:
        """Run what was asked for, and what failed again; tell of it, and return an exit code."""
        empty = namespaces(self.cluster)
        with watching(self.play, "--plain") as watch:
            try:
                until_accepted(self.cluster)
                first = self._run("suite.log", self.args.only, self.args.report)
                report_to(first, watch.reported())
                if (ended := watch.process.poll()) is not None:
                    log(
                        ("", f"The watch ended by itself, with exit code {ended}:", *end(until_crash(watch.reported())))
                    )
                if first.failure or ended is not None:
                    return first.code or 1
                return self._judge_again(first, empty, watch)
            finally:
                (self._directory / "watch.log").write_text(watch.reported())

    def _judge_again(self, first: Run, empty: frozenset[str], watch: Watch) -> int:
        judged = list(named(first, [(test, self._retry(test, empty, watch)) for test in first.failed]))
        log(judged)
        return int(any(line.startswith("failed: ") for line in judged))

    @property
    def _directory(self) -> Path:
        return Path(self.args.keep) if self.args.keep else self.play.root

    def _retry(self, test: str, empty: frozenset[str], watch: Watch) -> Run:
        """Run one test once more when nothing is left of the run before."""
        log(("", f"once more: {test}"))
        until_gone(self.cluster, empty)
        done = self._run(f"suite-{test}.log", test)
        report_to(done, watch.reported())
        return done

    def _run(self, log: str, only: str, report: str = "") -> Run:
        environment = {**os.environ, "KUBECONFIG": f"{self.cluster.plane.root}/owner.kubeconfig"}
        terms, seconds = self._command(only, report), 60 * (MINUTES + 5)
        path = self._directory / log
        with path.open("wb") as output:
            try:
                code = subprocess.run(
                    terms, check=False, env=environment, stdout=output, stderr=output, timeout=seconds
                ).returncode
            except subprocess.TimeoutExpired:
                code = _LATE
        return Run(code, path.read_text(errors="replace"))

    def _command(self, only: str, report: str) -> list[str]:
        chosen = {
            "gateway-class": CLASS,
            "conformance-profiles": ",".join(PROFILES),
            "usable-address": self.play.at(200),
            "unusable-address": "192.0.2.1",
            **_OF_US,
            "run-test": only,
            "report-output": report,
            "timeout-config-overrides": self.args.timeout,
            "supported-features": self.args.features if self.args.features != "all" else "",
        }
        flags = [f"--{name}={value}" for name, value in chosen.items() if value]
        flags += ["--all-features"] if self.args.features == "all" else []
        return [
            str(suite()),
            "-test.v",
            "-test.parallel=6",
            f"-test.timeout={MINUTES}m",
            f"-test.run=^{ROOT}$",
            *flags,
        ]


def report_to(done: Run, watched: str) -> None:
    """Print how each test ended, and why those failed that did; or why the suite couldn't run."""
    log(lines(done.results))
    for test in done.failed:
        stated = list(done.why(test))
        log(("", f"{test} failed; it said:", *stated, "", "and the watch meanwhile:", *meanwhile(stated, watched)))
    if done.failure:
        log(("", f"The suite itself failed: {done.failure}. The end of what it printed:", *done.ending()))
        log(("", "and of what the watch printed:", *end(until_crash(watched))))


def log(some: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in some))
    sys.stdout.flush()
