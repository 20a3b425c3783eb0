"""The DNS provider `rfc2136`: a name server that takes updates, one message for each change.

The only module that talks to one. Not here: the content of a message, and a name's owner (`updates`).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.tsig
import dns.tsigkeyring
import dns.update
import dns.zone

from locallb.dns.provider import DnsProvider, DnsProviderError
from locallb.dns.updates import TYPES, Marker, ServerAnswer, Set, Update, marker_name
from locallb.dns.zones import UpdatedServer, Zone
from locallb.model.identities import OwnerId, ZoneName
from locallb.patterns import pattern
from locallb.storage import files

TIMEOUT = 3.0
"""Seconds for one answer."""
_PIECE = 255
_DOUBTFUL = frozenset({dns.rcode.YXDOMAIN, dns.rcode.YXRRSET, dns.rcode.NXDOMAIN, dns.rcode.NXRRSET})
"""Answers that say: a prerequisite doesn't hold any more."""


_COMMENT = pattern(r'("[^"\n]*")|(?://|#)[^\n]*|/\*.*?\*/', re.DOTALL)
_KEY = pattern(r'key\s+"?([\w.-]+)"?\s*\{([^}]*)\}')
_FIELD = pattern(r'(algorithm|secret)\s+"?([\w.+/=-]+)"?\s*;')
ALGORITHMS = ("hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha1", "hmac-md5")


@dataclass(frozen=True, slots=True)
class TsigKey:
    """A key; its secret is never printed."""

    name: str
    algorithm: str
    secret: str = field(repr=False)


def parse_key(text: str) -> TsigKey | None:
    """Read the first key of a file, comments apart; None where there is none.

    The form is BIND's: `key "name" { algorithm hmac-sha256; secret "…"; };`.
    """
    match = _KEY.search(_COMMENT.sub(lambda part: part[1] or " ", text))
    fields = dict(_FIELD.findall(match[2])) if match else {}
    algorithm = fields.get("algorithm", "hmac-sha256")
    if not match or "secret" not in fields or algorithm not in ALGORITHMS:
        return None
    return TsigKey(match[1], algorithm, fields["secret"])


class NameServer(DnsProvider):
    """The server of a zone, and the file that has the key for it."""

    def __init__(self, zone: ZoneName, server: UpdatedServer, root: Path) -> None:
        super().__init__(zone, server, root)
        self._address, self._port, self._key = str(server.address), server.port, self.file("tsig")

    def version(self) -> int | None:
        """Return the zone's serial; None if it is unknown."""
        try:
            answer = self._requested(self.zone, "SOA")
        except DnsProviderError:
            return None
        values = [rdata.serial for rrset in answer.answer for rdata in rrset if rrset.rdtype == dns.rdatatype.SOA]
        return next(iter(values), None)

    def records(self, name: str, *, classic: bool = False) -> ServerAnswer:
        """Read by a question for each type: whether an answer is a wildcard's can't be told."""
        records, ttl = {}, 0
        for kind in TYPES:
            if answer := self._values(name, kind):
                records[kind], ttl = answer
        markers = {kind: texts for kind in TYPES if (texts := self._texts(marker_name(name, kind)))}
        return ServerAnswer(records, markers, ttl, self._texts(name) if classic else ())

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses that are answered for a name. Raises DnsProviderError."""
        answers = (self._values(name, kind) for kind in ("A", "AAAA"))
        return tuple(value for answer in answers if answer for value in answer[0])

    def apply(self, update: Update, ttl: int) -> bool:
        message = dns.update.UpdateMessage(f"{self.zone}.")
        for record_set in update.present:
            message.present(_absolute(record_set.name), record_set.kind, *_written(record_set))
        for record_set in update.absent:
            message.absent(_absolute(record_set.name), record_set.kind)
        for record_set in (*update.removed, *update.put):
            message.delete(_absolute(record_set.name), record_set.kind)
        for record_set in update.put:
            message.add(_absolute(record_set.name), ttl, record_set.kind, *_written(record_set))
        code = self._exchange(message).rcode()
        if code in _DOUBTFUL:
            return False
        if code != dns.rcode.NOERROR:
            raise DnsProviderError(f"{self} refuses an update ({dns.rcode.to_text(code)}): {_remedy(code)}")
        return True

    def names(self, owner: OwnerId) -> Iterator[tuple[str, Marker]]:
        """Find them by a transfer of the zone."""
        transferred = dns.zone.Zone(f"{self.zone}.", relativize=False)
        query = dns.message.make_query(f"{self.zone}.", "AXFR")
        self._sign(query)
        try:
            dns.query.inbound_xfr(self._address, transferred, query, port=self._port, timeout=TIMEOUT, lifetime=60.0)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DnsProviderError(self._fault(error)) from None
        for owner_name, rdata in ((name, rdata) for name, _, rdata in transferred.iterate_rdatas("TXT")):
            kind, _, name = owner_name.to_text(omit_final_dot=True).lower().partition("-")
            marker = Marker.parse(_joined(rdata.to_text()))
            if marker and marker.owner == owner and kind.upper() in TYPES:
                yield name, marker

    def _values(self, name: str, kind: str) -> tuple[tuple[str, ...], int] | None:
        """Return the values of a record set and its TTL; None where there is none of just this name and type."""
        answer = self._requested(name, kind)
        wanted = dns.rdatatype.from_text(kind)
        for rrset in answer.answer:
            if rrset.rdtype == wanted and rrset.name.to_text(omit_final_dot=True).lower() == name:
                return tuple(sorted(rdata.to_text() for rdata in rrset)), int(rrset.ttl)
        return None

    def _texts(self, name: str) -> tuple[str, ...]:
        answer = self._values(name, "TXT")
        return tuple(map(_joined, answer[0])) if answer else ()

    def _requested(self, name: str, kind: str) -> dns.message.Message:
        query = dns.message.make_query(_absolute(name), kind)
        query.flags &= ~dns.flags.RD
        try:
            answer, _ = dns.query.udp_with_fallback(query, self._address, TIMEOUT, self._port)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DnsProviderError(self._fault(error)) from None
        if answer.rcode() not in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
            code = answer.rcode()
            raise DnsProviderError(f"{self} refuses a question ({dns.rcode.to_text(code)}): {_remedy(code)}")
        return answer

    def _exchange(self, message: dns.message.Message) -> dns.message.Message:
        self._sign(message)
        try:
            return dns.query.tcp(message, self._address, TIMEOUT, self._port)
        except (dns.exception.DNSException, OSError, EOFError) as error:
            raise DnsProviderError(self._fault(error)) from None

    def _sign(self, message: dns.message.Message) -> None:
        """Sign with the key of the file, which is read each time and kept nowhere."""
        if self._key is None:
            return
        try:
            text = files.read(self._key)
        except files.FilesError as error:
            raise DnsProviderError(f"{self}: its key can't be read: {error}") from None
        key = parse_key(text or "")
        if key is None:
            why = "has no key" if text else "isn't there"
            raise DnsProviderError(f"{self}: {self._key} {why}; write one with `tsig-keygen NAME >{self._key}`")
        try:
            keyring = dns.tsigkeyring.from_text({key.name: key.secret})
        except (binascii.Error, ValueError):
            raise DnsProviderError(f"{self}: the secret in {self._key} isn't base64; make another one") from None
        message.use_tsig(keyring, algorithm=dns.name.from_text(key.algorithm))

    def _fault(self, error: Exception) -> str:
        if isinstance(error, dns.tsig.PeerBadTime | dns.tsig.BadTime):
            return f"{self} has another time than this host: set both clocks"
        if isinstance(error, dns.tsig.PeerError | dns.tsig.BadSignature | dns.message.UnknownTSIGKey):
            return f"{self} doesn't take the key in {self._key}: give `tsig` the file of a key that the server has"
        if isinstance(error, dns.exception.Timeout | OSError | EOFError):
            return f"{self} doesn't answer: start it, or correct local-lb:dns.zones; it is tried again"
        return f"{self} gives an answer that can't be used: {type(error).__name__}: {error}"


PROVIDER = NameServer


def addresses_at_server(name: str, zone: Zone) -> frozenset[str] | None:
    """Return the addresses that a zone's server knows, by whatever provider; None where it doesn't answer."""
    try:
        server = UpdatedServer(zone.server.address, zone.server.port)
        return frozenset(NameServer(zone.name, server, Path()).addresses(name))
    except DnsProviderError:
        return None


def _joined(text: str) -> str:
    return text.replace('" "', "").strip('"')


def _absolute(name: str) -> str:
    return f"{name}."


def _written(record_set: Set) -> Iterator[str]:
    """Return values as a zone's file has them; a text in pieces, each of which has a length of one byte."""
    for value in record_set.values:
        pieces = (value[start : start + _PIECE] for start in range(0, len(value), _PIECE))
        yield " ".join(f'"{piece}"' for piece in pieces) if record_set.kind == "TXT" else value


def _remedy(code: int) -> str:
    if code in {dns.rcode.NOTAUTH, dns.rcode.NOTZONE}:
        return "it isn't the zone's server, or wants another key; correct local-lb:dns.zones"
    return "allow this host to change and ask it (BIND: `allow-update`), or give `tsig` a file with a key that may"
