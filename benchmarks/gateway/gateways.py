"""The gateways that can be measured: how each is configured and started, as its users would."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock import __version__

from .environments import environment, version
from .processes import Cores, Process

START_SECONDS = 180.0
POLL_SECONDS = 0.02
HOST = "127.0.0.1"
MODEL = "mock"
LITELLM = ("litellm[proxy]==1.106.*", "litellm[proxy]")
AMPLE = 1_000_000_000  # a limit that is kept account of and never reached


class NotStartedError(RuntimeError):
    """A gateway did not come up; the message says why."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a gateway is started with."""

    folder: Path  # of this run: configuration, logs, state
    cache: Path
    upstreams: list[str]
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a gateway is started, and how it is spoken to."""

    command: list[str]
    port: int
    key: str
    version: str
    env: dict[str, str]
    note: str | None = None


@dataclass(slots=True)
class Gateway:
    """A gateway that answers."""

    name: str
    launch: Launch
    process: Process
    start_seconds: float  # until the first real answer

    @property
    def address(self) -> dict[str, Any]:
        return {"host": HOST, "port": self.launch.port, "model": MODEL, "key": self.launch.key}


def penstock(setting: Setting, name: str = "penstock", observed: dict[str, Any] | None = None) -> Launch:
    """Everything on: keys, limits, budget, prices, ledger, queue, balancing by prefix, metrics, console."""
    port, state = free_port(), setting.folder / name
    shutil.rmtree(state, ignore_errors=True)  # of a former run in the same folder
    config = {
        "host": HOST,
        "port": port,
        "state_dir": str(state),
        "models": {
            MODEL: {
                "backends": [{"vllm": url} for url in setting.upstreams],
                "balance": "prefix",
                "price": {"input": 0.15, "cached_input": 0.075, "output": 0.6, "request": 0.0001},
                "context": 32768,
                "max_tokens": 4096,
                "slo": {"ttft": 1.0},
            }
        },
        "tenants": {
            "benchmark": {
                "class": "interactive",
                "weight": 2,
                "models": [MODEL],
                "requests_per_minute": AMPLE,
                "tokens_per_minute": AMPLE * 1000,
                "concurrent": 10_000,
                "monthly_budget": 1_000_000,
                "max_tokens": 4096,
                "prompt_budget": 16384,
            }
        },
        "queue": {"max_requests": 10_000},
        **(observed or {}),
    }
    path = setting.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return Launch(
        command=[sys.executable, "-m", "penstock", "serve", "--config", str(path)],
        port=port,
        key=create_key(path, "benchmark"),
        version=__version__,
        env={"NO_COLOR": "1"},
    )


def unmeasured(setting: Setting) -> Launch:
    """The same Penstock, but nobody hears of its requests: no metrics of them, no console, no slow ones."""
    off = {"metrics": {"enabled": False, "gpu": False}, "console": {"enabled": False}, "slow": {"log": False}}
    return penstock(setting, "unmeasured", off)


def litellm(setting: Setting) -> Launch:
    """LiteLLM's proxy from PyPI: one model, one worker, a master key, no database."""
    binaries, note = environment(setting.cache, "litellm", LITELLM, setting.say)
    port, key = free_port(), "sk-benchmark"
    upstream = {
        "model": f"openai/{MODEL}",
        "api_base": f"{setting.upstreams[0]}/v1",
        "api_key": "sk-upstream",
    }
    config = {
        "model_list": [{"model_name": MODEL, "litellm_params": upstream}],
        "general_settings": {"master_key": key},
    }
    path = setting.folder / "litellm.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return Launch(
        command=[
            *(str(binaries / "litellm"), "--config", str(path), "--host", HOST),
            *("--port", str(port), "--num_workers", "1"),
        ],
        port=port,
        key=key,
        version=version(binaries, "litellm"),
        # Its list of prices from the package, not from the web: the machine may be off-line.
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"},
        note=note,
    )


def create_key(config: Path, tenant: str) -> str:
    """A key of a tenant, made as a user would."""
    command = [sys.executable, "-m", "penstock", "keys", "create", "benchmark", "--tenant", tenant]
    done = subprocess.run([*command, "--config", str(config)], capture_output=True, text=True)
    if done.returncode:
        raise NotStartedError(f"no key could be made: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def billed(config: Path) -> tuple[int, int]:
    """Requests and completion tokens in the ledger of a Penstock server."""
    command = [sys.executable, "-m", "penstock", "usage", "--json", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    total = json.loads(done.stdout)["total"]
    return total["ok"], total["completion_tokens"]


GATEWAYS: dict[str, Callable[[Setting], Launch]] = {
    "penstock": penstock,
    "unmeasured": unmeasured,
    "litellm": litellm,
}


def start(name: str, setting: Setting, cores: Cores, started: Callable[[Process], None]) -> Gateway:
    """Start a gateway and wait for its first answer. `started` gets the process as soon as there is one."""
    launch = GATEWAYS[name](setting)
    began = time.monotonic()
    process = Process(
        launch.command, cores={cores.gateway}, log=setting.folder / f"{name}.log", env=launch.env
    )
    started(process)
    gateway = Gateway(name, launch, process, 0.0)
    seen = "nothing"
    while time.monotonic() - began < START_SECONDS:
        if (code := process.popen.poll()) is not None:
            raise NotStartedError(f"it ended with {code}: {process.last_words(4)}")
        seen = probe(gateway)
        if seen == "200":
            gateway.start_seconds = time.monotonic() - began
            return gateway
        time.sleep(POLL_SECONDS)
    raise NotStartedError(f"no answer within {START_SECONDS:.0f} s, at last {seen}: {process.last_words(4)}")


def probe(gateway: Gateway) -> str:
    """What becomes of one small request: "200", another status with its text, or why there was none."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {gateway.launch.key}"}
    connection = http.client.HTTPConnection(HOST, gateway.launch.port, timeout=30)
    with contextlib.closing(connection):
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return str(error)
    return "200" if answer.status == 200 else f"{answer.status} {content[:300].decode(errors='replace')}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
