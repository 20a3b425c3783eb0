"""The forms of a log line: plain for people, JSON for programs. Nothing from a cluster can break a line."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from locallb.cli.watching.log.log_record import Level, LogRecord
from locallb.report.safe import visible

LONGEST = 2000
"""Characters of a plain line."""
_PRIORITIES = {Level.ERROR: 3, Level.WARNING: 4, Level.INFO: 6}


def plain(record: LogRecord) -> str:
    """Write a record for people: the local time, and one sentence."""
    level = "" if record.level is Level.INFO else f"{record.level}: "
    return f"{clock(record.at)} {level}{visible(record.sentence.replace(chr(10), ' | '), LONGEST)}"


def journal(record: LogRecord) -> str:
    """Write a record for systemd's journal, which has the time and takes the level from the prefix (sd-daemon(3))."""
    return f"<{_PRIORITIES[record.level]}>{visible(record.sentence.replace(chr(10), ' | '), LONGEST)}"


def is_journal(descriptor: int) -> bool:
    """Return whether a stream leads to systemd's journal."""
    try:
        observed = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{observed.st_dev}:{observed.st_ino}"


def as_json(record: LogRecord, stack: str) -> str:
    """Write a record for programs: one JSON object in ASCII. The time is RFC 3339 in UTC."""
    time = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"time": time, "level": str(record.level), "event": record.event, "stack": stack}
    return json.dumps({**head, **record.fields}, ensure_ascii=True)


def clock(at: float) -> str:
    """Write a time of day, local, with milliseconds."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S.%f")[:-3]
