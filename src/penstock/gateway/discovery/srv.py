"""SRV records, which name servers with their ports; the C library's resolver does not ask for them."""

from __future__ import annotations

import secrets
import socket
import struct
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
TIMEOUT = 2.0  # seconds for one name server
MAX_UDP = 4096  # bytes
_SRV, _INTERNET, _OPT = 33, 1, 41
_HEADER = struct.Struct(">6H")  # id, flags, and the numbers of questions, answers, authorities, additions
_RECORD = struct.Struct(">HHIH")  # type, class, time to live, length
_TARGET = struct.Struct(">3H")  # priority, weight, port
_RECURSE, _TRUNCATED, _CODE, _NO_SUCH_NAME = 0x0100, 0x0200, 0x000F, 3


def resolve_srv(name: str, port: int) -> list[tuple[str, int]]:
    """Names and ports of the servers of best priority; each has its own, so `port` is not used."""
    failure: OSError = OSError("no name server is configured")
    for server in name_servers():
        try:
            return _ask(server, name)
        except OSError as error:
            failure = error
    raise failure


def name_servers(path: Path = RESOLV_CONF) -> list[str]:
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def _ask(server: str, name: str, port: int = 53) -> list[tuple[str, int]]:
    """Ask one name server, by UDP, and by TCP if the answer does not fit."""
    number = secrets.randbits(16)
    question = query(name, number)
    kind = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as udp:
        udp.settimeout(TIMEOUT)
        udp.connect((server, port))
        udp.send(question)
        answer = udp.recv(MAX_UDP)
    try:
        found = answers(answer, number)
        if found is None:
            with socket.create_connection((server, port), TIMEOUT) as tcp, tcp.makefile("rb") as stream:
                tcp.sendall(len(question).to_bytes(2, "big") + question)
                size = int.from_bytes(stream.read(2), "big")
                found = answers(stream.read(size), number)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise OSError("the name server's answer cannot be read") from None
    if found is None:
        raise OSError("the name server's answer is incomplete")
    return found


def query(name: str, number: int) -> bytes:
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
    if any(not 1 <= len(label) <= 63 for label in labels):
        raise OSError(f"{name!r} is not a DNS name")
    question = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    head = _HEADER.pack(number, _RECURSE, 1, 0, 0, 1)
    # The addition says how large an answer may be.
    size = b"\0" + _RECORD.pack(_OPT, MAX_UDP, 0, 0)
    return head + question + struct.pack(">HH", _SRV, _INTERNET) + size


def answers(message: bytes, number: int) -> list[tuple[str, int]] | None:
    """Targets of best (lowest) priority; None: the answer was cut. Raises OSError for a refusal."""
    found_number, flags, questions, records, *_ = _HEADER.unpack_from(message)
    if found_number != number:
        raise OSError("the name server answered another question")
    if flags & _TRUNCATED:
        return None
    code = flags & _CODE
    if code:
        raise OSError(
            "there is no such name" if code == _NO_SUCH_NAME else f"the name server says error {code}"
        )
    at = _HEADER.size
    for _ in range(questions):
        at = _name(message, at)[1] + 4
    targets: list[tuple[int, str, int]] = []
    for _ in range(records):
        at = _name(message, at)[1]
        kind, _, _, length = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if kind == _SRV:
            priority, _, port = _TARGET.unpack_from(message, at)
            target = _name(message, at + _TARGET.size)[0]
            if target:  # none: the service is decidedly not there
                targets.append((priority, target, port))
        at += length
    best = min((priority for priority, _, _ in targets), default=0)
    return [(target, port) for priority, target, port in targets if priority == best]


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A name, whose end may lie elsewhere in the message, and where reading goes on."""
    labels: list[str] = []
    after: int | None = None
    # Pointers lead backwards only, so that a crafted message cannot lead in a circle.
    while message[at]:
        length = message[at]
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | message[at + 1]
            if target >= at:
                raise OSError("the name server's answer cannot be read")
            after = at + 2 if after is None else after
            at = target
            continue
        labels.append(message[at + 1 : at + 1 + length].decode("ascii"))
        at += 1 + length
    return ".".join(labels), at + 1 if after is None else after
