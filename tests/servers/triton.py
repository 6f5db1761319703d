"""A server that speaks Triton's HTTP protocol: health, configuration, generate, infer and metrics.

Its models answer with the words of the prompt's last line in reverse order, as far as max_tokens goes; a
token is a word. A word that is a stop word ends the text, and is part of it, as with TensorRT-LLM.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Literal

from tests.servers.http import HangUp, LocalServer, Reply, Request, answer

Fault = Literal[
    "unavailable",  # 503
    "refused",  # 400, the prompt is too long
    "garbage",  # 200, but not its answer
    "nothing",  # closes without an answer
    "half",  # the stream breaks off
    "error_event",  # an error object after some text
    "error_first",
    "wait",  # says nothing until `go` is set
]


def tensor(name: str, kind: str = "TYPE_STRING", *, optional: bool = False) -> dict[str, Any]:
    return {"name": name, "data_type": kind, "dims": [1], "optional": optional}


def _optional(kind: str, *names: str) -> list[dict[str, Any]]:
    return [tensor(name, kind, optional=True) for name in names]


CONFIGS: dict[str, dict[str, Any]] = {
    "ensemble": {
        "max_batch_size": 8,
        "platform": "ensemble",
        "input": [
            tensor("text_input"),
            tensor("max_tokens", "TYPE_INT32"),
            tensor("bad_words"),
            tensor("stop_words"),
            *_optional("TYPE_FP32", "temperature", "top_p", "repetition_penalty", "presence_penalty"),
            *_optional("TYPE_INT32", "top_k", "min_length"),
            *_optional("TYPE_UINT64", "random_seed"),
            *_optional("TYPE_BOOL", "stream"),
        ],
        "output": [tensor("text_output"), tensor("cum_log_probs", "TYPE_FP32")],
        "ensemble_scheduling": {"step": [{"model_name": "tensorrt_llm", "model_version": "-1"}]},
    },
    "tensorrt_llm": {
        "max_batch_size": 8,
        "backend": "tensorrtllm",
        "input": [tensor("input_ids", "TYPE_INT32")],
        "output": [tensor("output_ids", "TYPE_INT32")],
        "model_transaction_policy": {"decoupled": True},
        "parameters": {"exclude_input_in_output": {"string_value": "false"}},
    },
    "vllm_model": {
        "backend": "vllm",
        "input": [
            tensor("text_input"),
            *_optional("TYPE_STRING", "sampling_parameters"),
            *_optional("TYPE_BOOL", "stream", "exclude_input_in_output", "return_finish_reason"),
            *_optional("TYPE_BOOL", "return_num_input_tokens", "return_num_output_tokens"),
        ],
        "output": [
            tensor("text_output"),
            tensor("finish_reason"),
            tensor("num_input_tokens", "TYPE_UINT32"),
            tensor("num_output_tokens", "TYPE_UINT32"),
        ],
        "model_transaction_policy": {"decoupled": True},
    },
    "renamed": {"backend": "python", "input": [tensor("PROMPT")], "output": [tensor("COMPLETION")]},
    "embedder": {
        "max_batch_size": 16,
        "backend": "python",
        "input": [tensor("text_input")],
        "output": [tensor("embedding", "TYPE_FP32")],
    },
}

METRICS = """\
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 9
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 100
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 0
nv_inference_pending_request_count{model="ensemble",version="1"} 2
nv_inference_pending_request_count{model="embedder",version="1"} 40
"""


class TritonServer(LocalServer):
    """Faults are taken from `faults`, one for each POST; when there are none left it behaves."""

    def __init__(self) -> None:
        super().__init__(self._handle)
        self.faults: deque[Fault] = deque()
        self.go = asyncio.Event()
        self.ready = True

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the last POST."""
        return dict(next(each for each in reversed(self.requests) if each.method == "POST").json())

    async def _handle(self, request: Request) -> Reply:
        match request.path.strip("/").split("/"):
            case ["metrics"]:
                return Reply(200, METRICS.encode(), {"content-type": "text/plain"})
            case ["v2", "health", "live"]:
                return Reply()
            case ["v2", "health", "ready"]:
                return Reply(200 if self.ready else 400)
            case ["v2", "models", name, *rest] if rest:
                if rest[:1] == ["versions"]:
                    if rest[1] != "1":
                        return answer(
                            {"error": f"Request for unknown model: '{name}' version {rest[1]}"}, 404
                        )
                    rest = rest[2:]
                return await self._model(request, name, rest[0])
        return _refused("Not Found", 404)

    async def _model(self, request: Request, name: str, action: str) -> Reply:
        if name not in CONFIGS:
            return _refused(f"Request for unknown model: '{name}' is not found", 404)
        if action == "ready":
            return Reply(200 if self.ready else 400)
        if action == "config":
            return answer({"name": name, **CONFIGS[name]})
        fault = self.faults.popleft() if self.faults else None
        match fault:
            case "nothing":
                raise HangUp
            case "unavailable":
                return _refused("Model is unavailable due to unhealthy engine", 503)
            case "refused":
                text = "Prompt length (9000) exceeds maximum input length (8192)"
                return _refused(f"in ensemble '{name}', {text}")
            case "garbage":
                return answer({"hello": "world"})
            case "wait" if action != "generate_stream":
                await self.go.wait()
        if action == "infer":
            return self._infer(name, request.json())
        made = _made(name, request.json())
        if isinstance(made, Reply):
            return made
        if action == "generate":
            return answer(made.whole())
        stream = self._stream(made, fault)
        return Reply(200, headers={"content-type": "text/event-stream; charset=utf-8"}, stream=stream)

    async def _stream(self, made: Made, fault: Fault | None) -> AsyncIterator[bytes]:
        if fault == "wait":
            await self.go.wait()
        error = {"error": "Executor failed process requestId 7 at /opt/tritonserver/model.cc"}
        if fault == "error_first":
            yield _event(error)
            return
        for number, piece in enumerate(made.pieces()):
            if number == 1 and fault == "half":
                raise HangUp
            if number == 1 and fault == "error_event":
                yield _event(error)
                return
            yield _event(piece)
            await asyncio.sleep(0)

    def _infer(self, name: str, body: dict[str, Any]) -> Reply:
        given = {}
        for each in body["inputs"]:
            known = next((one for one in CONFIGS[name]["input"] if one["name"] == each["name"]), None)
            if known is None:
                return answer(
                    {"error": f"unexpected inference input '{each['name']}' for model '{name}'"}, 400
                )
            wanted = known["data_type"].replace("TYPE_", "").replace("STRING", "BYTES")
            if each["datatype"] != wanted:
                return answer(
                    {"error": f"inference input '{each['name']}' data-type is '{each['datatype']}'"}, 400
                )
            size = 1
            for part in each["shape"]:
                size *= part
            batched = CONFIGS[name].get("max_batch_size", 0) > 0
            if size != len(each["data"]) or (batched and len(each["shape"]) != 2):
                return _refused(f"unexpected shape for input '{each['name']}'")
            given[each["name"]] = each["data"]
        if name == "embedder":
            rows = [[float(len(text)), 1.0, 0.5] for text in given["text_input"]]
            data = [value for row in rows for value in row]
            output = {"name": "embedding", "datatype": "FP32", "shape": [len(rows), 3], "data": data}
            return answer({"model_name": name, "outputs": [output]})
        flat = {key: values if key == "stop_words" else values[0] for key, values in given.items()}
        made = _made(name, {**flat, "parameters": body.get("parameters", {})})
        if isinstance(made, Reply):
            return made
        whole = made.whole()
        outputs = [
            {"name": key, "datatype": "BYTES", "shape": [1], "data": [value]}
            for key, value in whole.items()
            if key in {each["name"] for each in body["outputs"]}
        ]
        return answer({"model_name": name, "model_version": "1", "outputs": outputs})


class Made:
    """What a model has made of a request."""

    def __init__(
        self, name: str, output: str, prompt: str, words: list[str], extra: bool, echo: bool
    ) -> None:
        self._frame = {"model_name": name, "model_version": "1"}
        self._output = output
        self._prompt = prompt
        self._words = words
        self._extra = extra
        self._echo = echo
        self.reason = "stop"

    def whole(self) -> dict[str, Any]:
        text = " ".join(self._words)
        return self._answer((self._prompt if self._echo else "") + text, len(self._words), self.reason)

    def pieces(self) -> list[dict[str, Any]]:
        count = len(self._words)
        return [
            self._answer(
                word if not number else f" {word}", 1, self.reason if number == count - 1 else "None"
            )
            for number, word in enumerate(self._words)
        ]

    def _answer(self, text: str, tokens: int, reason: str) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if self._extra:
            counts = {"num_input_tokens": len(self._prompt.split()), "num_output_tokens": tokens}
            extra = {"finish_reason": reason, **counts}
        return {**self._frame, self._output: text, **extra}


def _made(name: str, body: dict[str, Any]) -> Made | Reply:
    known = {each["name"]: each for each in CONFIGS[name]["input"]}
    for each in known.values():
        if not each["optional"] and each["name"] not in body:
            return _refused(f"expected input '{each['name']}' is missing for model '{name}'")
    unknown = set(body) - set(known) - {"parameters"}
    if unknown and name == "ensemble":
        return _refused(f"unexpected inference input '{min(unknown)}' for model '{name}'")
    given = {**body, **body.get("parameters", {}), **json.loads(body.get("sampling_parameters", "{}"))}
    prompt = given["PROMPT" if name == "renamed" else "text_input"]
    made = list(reversed(prompt.splitlines()[-1].split())) if prompt else []
    limit = given.get("max_tokens", 16)
    words, reason = made[:limit], "length" if len(made) > limit else "stop"
    stops = given.get("stop_words") or given.get("stop") or []
    for index, word in enumerate(words):
        if word in stops:
            words, reason = words[: index + 1], "stop"
            break
    output = "COMPLETION" if name == "renamed" else "text_output"
    vllm = name == "vllm_model"
    echo = not given.get("exclude_input_in_output") if vllm else name == "ensemble"
    extra = vllm and given.get("return_finish_reason", False)
    result = Made(name, output, prompt, words, extra=extra, echo=echo)
    result.reason = reason
    return result


def _refused(message: str, status: int = 400) -> Reply:
    return answer({"error": message}, status)


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()
