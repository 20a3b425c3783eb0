"""The commands `ca show | create | export`: your own authority for certificates, of which only the key is a secret.

`ca trust | untrust` are in `trusting`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from locallb.certificates import store
from locallb.certificates.local import DOMAINS
from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.model.formatting import shown
from locallb.model.http import checks as http_checks
from locallb.storage import files

_READABLE = 0o644
_NONE = "you have no authority yet: `locallb ca create` makes one, and so does `up` of a stack that needs it"


def ca(args: Arguments, out: Out) -> int:
    """Run the word after `ca`."""
    if args.action in {"trust", "untrust"}:
        from locallb.cli.host.trusting import trust, untrust  # noqa: PLC0415 - looks for stores of this host

        return trust(_found(), args, out) if args.action == "trust" else untrust(store.find(), args, out)
    return {"show": _show, "create": _create, "export": _export}[args.action](args, out)


def _show(args: Arguments, out: Out) -> int:
    existing = store.find()
    if args.json:
        out.raw(json.dumps(_document(existing) if existing else None, indent=2))
    elif existing:
        _report(existing, out)
    else:
        out.line(_NONE[0].upper() + _NONE[1:] + ".")
    why = store.fault(existing, store.now()) if existing else ""
    if why:
        out.error(why)
    return Exit.FAILED if why else Exit.OK


def _create(args: Arguments, out: Out) -> int:
    domains = tuple(dict.fromkeys((*DOMAINS, *map(_domain, args.domains))))
    if not args.replaces and store.find():
        raise Refused("you have an authority already; --replace makes another one, which clients don't trust yet")
    made = store.create(domains, store.now(), replace=args.replaces)
    if args.json:
        out.raw(json.dumps(_document(made), indent=2))
    else:
        _report(made, out)
    return Exit.OK


def _export(args: Arguments, out: Out) -> int:
    existing = _found()
    if args.place:
        files.write(args.place, existing.pem, mode=_READABLE)
    if args.json:
        out.raw(json.dumps({**_document(existing), "pem": existing.pem}, indent=2))
    elif args.place is None:
        out.document(existing.pem)
    return Exit.OK


def _found() -> store.Authority:
    existing = store.find()
    if existing is None:
        raise Refused(_NONE)
    return existing


def _domain(text: str) -> str:
    name = text.lower().removeprefix("*.").strip(".")
    try:
        return http_checks.hostname(name, wildcard=False)
    except ValueError:
        raise Refused(f"--domain {shown(text)} is no domain; write one such as shop.example.com") from None


def _report(existing: store.Authority, out: Out) -> None:
    for name, value in _document(existing).items():
        out.line(f"{name}: {value if isinstance(value, str) else ', '.join(value)}")


def _document(existing: store.Authority) -> Mapping[str, str | list[str]]:
    observed = existing.observed
    return {
        "name": observed.name,
        "certificate": str(existing.file),
        "fingerprint": observed.fingerprint,
        "begins": f"{observed.begins:%Y-%m-%dT%H:%M:%SZ}",
        "ends": f"{observed.ends:%Y-%m-%dT%H:%M:%SZ}",
        "domains": list(observed.domains),
    }
