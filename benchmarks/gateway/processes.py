"""Processes of a benchmark: started on a core of their own, weighed by the kernel, ended for certain."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 20.0  # a server may drain; then it is killed
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the gateway has to itself, and which the mock and the load generator share."""

    gateway: int
    others: int

    @classmethod
    def usable(cls) -> Cores:
        cores = sorted(os.sched_getaffinity(0))
        return cls(gateway=cores[-1], others=cores[0])

    @property
    def apart(self) -> bool:
        return self.gateway != self.others


class Process:
    """A program and all it starts, in a session of its own: Ctrl-C is the benchmark's business."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cores: Collection[int],
        log: Path,
        env: dict[str, str] | None = None,
        pipes: bool = False,
    ) -> None:
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else output,
                stderr=output,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    def tree(self) -> list[int]:
        """The process and its descendants that live."""
        found, look = [], [self.popen.pid]
        while look:
            pid = look.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    look.extend(int(child) for child in (task / "children").read_text().split())
        return found

    def cpu_seconds(self) -> float:
        """User and system time of the whole tree, with that of children which have ended."""
        return sum(_cpu_seconds(pid) for pid in self.tree())

    def memory(self) -> int:
        """Bytes: the proportional share (PSS) of the whole tree, which counts shared pages once."""
        return sum(_pss(pid) for pid in self.tree())

    def last_words(self, lines: int = 12) -> str:
        text = self.log.read_text(errors="replace").strip()
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(seconds)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)  # what outlived its parent
        if self.popen.stdout is not None:
            self.popen.stdout.close()


def _cpu_seconds(pid: int) -> float:
    try:
        # After the name, which may hold spaces: utime, stime, cutime and cstime are fields 14 to 17.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Mock:
    """The mock upstream, running; it passes for two servers by listening on two ports."""

    def __init__(self, core: int, folder: Path) -> None:
        command = [sys.executable, str(HERE / "mock.py"), "--listen", "2"]
        self.process = Process(command, cores={core}, log=folder / "mock.log", pipes=True)
        said = _line(self.process)
        self.host: str = said["host"]
        self.ports: list[int] = said["ports"]

    @property
    def urls(self) -> list[str]:
        return [f"http://{self.host}:{port}" for port in self.ports]

    def step(self, seconds: float) -> None:
        """How long a step of all streams takes from now on; 0 is as fast as it can."""
        connection = http.client.HTTPConnection(self.host, self.ports[0], timeout=10)
        with contextlib.closing(connection):
            connection.request("POST", f"/control?step_ms={seconds * 1000:g}")
            connection.getresponse().read()


class Load:
    """The load generator, running: does one job after another."""

    def __init__(self, core: int, folder: Path) -> None:
        command = [sys.executable, str(HERE / "load.py")]
        self.process = Process(command, cores={core}, log=folder / "load.log", pipes=True)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.popen.stdin.flush()
        return _line(self.process)


def _line(process: Process) -> dict[str, Any]:
    assert process.popen.stdout is not None
    line = process.popen.stdout.readline()
    if not line:
        process.popen.wait()
        raise RuntimeError(f"{process.log.stem} ended by itself:\n{process.last_words()}")
    answer: dict[str, Any] = json.loads(line)
    return answer
