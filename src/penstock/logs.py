"""What a line of the log is: text or JSON, with the request that the front door was working on, and without
what looks like a key.

Below everything else, so that engines log as their server does: they are told how by their environment.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

# Of the request that is being worked on; set where it comes in, inherited by the tasks and threads it starts.
request_id: ContextVar[str] = ContextVar("request_id", default="")

trace_id: ContextVar[int] = ContextVar("trace_id", default=0)  # of its trace, if it belongs to one

LEVEL: Final = "PENSTOCK_LOG_LEVEL"
FORMAT: Final = "PENSTOCK_LOG_FORMAT"

# Nothing here logs keys on purpose; other people's words may hold one: an exception's, a library's.
_KEYS: Final = (
    (re.compile(r"\bsk-[\w-]{8,}"), "sk-***"),
    (re.compile(r"(?i)\b(bearer|authorization\W{1,4}basic)\s+[^\s'\"]+"), r"\1 ***"),
    (re.compile(r"(?i)\b(api[-_]key|password|secret)(['\"]?\s?[:=]\s?b?['\"]?)[^\s'\",;}]+"), r"\1\2***"),
    (re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+@"), "***@"),
)
# What a terminal would obey, or take for the end of a line.
_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_IN_LINES: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_FOREIGN: Final = frozenset({"asyncio", "uvicorn"})  # who log what nobody has caught, wherever it came from
_told: dict[str, str] = {}


def configure(level: str, form: str, process: str = "") -> None:
    """Log to stderr from now on. `process` tells this one from others of the same server."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(process) if form == "json" else TextLines(process))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLogger().level))
    _told.update({LEVEL: level, FORMAT: form})


@contextmanager
def about(request: str, trace: int = 0) -> Iterator[None]:
    """What is logged meanwhile belongs to this request, whichever is being worked on."""
    before = request_id.set(request), trace_id.set(trace)
    try:
        yield
    finally:
        request_id.reset(before[0])
        trace_id.reset(before[1])


def inherited() -> dict[str, str]:
    """What an engine's environment needs for its lines to be like ours."""
    return dict(_told)


def configure_engine() -> None:
    level = os.environ.get(LEVEL, "")
    known = level.upper() in logging.getLevelNamesMapping()
    configure(level if known else "info", os.environ.get(FORMAT, ""), str(os.getpid()))


def without_keys(text: str) -> str:
    for pattern, mark in _KEYS:
        text = pattern.sub(mark, text)
    return text


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def frames(error: BaseException | None) -> str:
    """Where an error came from and of what kinds it was, the first cause first, without its words: they may
    quote what a client has sent."""
    found: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines = "".join(traceback.format_tb(error.__traceback__))
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        found.append(f"Traceback (most recent call last):\n{lines}{kind}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n\nfrom which came:\n\n".join(reversed(found))


def _traceback(record: logging.LogRecord, whole: Callable[[Any], str]) -> str:
    """Of an error in the midst of a request, or of nobody knows what, only where it came from."""
    assert record.exc_info, "there is an error"
    if request_id.get() or _foreign(record):
        return frames(record.exc_info[1])
    return whole(record.exc_info)


def _foreign(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _FOREIGN


def _message(record: logging.LogRecord) -> str:
    """Of others' errors the first line: below it asyncio describes a task with its exception's words."""
    message = record.getMessage()
    return message.partition("\n")[0] if record.exc_info and _foreign(record) else message


class TextLines(logging.Formatter):
    """`2026-11-16 04:35:11,123 WARNING penstock.gateway[0] [request id]: message`."""

    def __init__(self, process: str = "") -> None:
        whose = f"[{process}]" if process else ""
        super().__init__(f"%(asctime)s %(levelname)s %(name)s{whose}%(request)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        request = request_id.get()
        record.request = f" [{request}]" if request else ""
        if record.exc_info:
            record.exc_text = _traceback(record, self.formatException)
        return without_keys(_CONTROL_IN_LINES.sub(_escaped, super().format(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        # Whatever a message quotes, it does not begin a line of its own.
        record.message = _CONTROL.sub(_escaped, _message(record).rstrip("\n"))
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One object a line. What a caller gives as `extra={"fields": {...}}` are fields of their own."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        moment = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if self._process:
            line["process"] = self._process
        if request := request_id.get():
            line["request_id"] = request
        if trace := trace_id.get():
            line["trace_id"] = f"{trace:032x}"
        for name, value in getattr(record, "fields", {}).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = _traceback(record, self.formatException)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        # Before it is JSON: an escape must not be cut in two.
        for name, value in line.items():
            if isinstance(value, str):
                line[name] = without_keys(value)
        return json.dumps(line, default=str)
