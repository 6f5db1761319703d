"""llama.cpp's own server, run inside its environment: `python ... MODEL SLOTS`. Prints where it listens."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"llama-of-cpp"}
    params.n_parallel = int(sys.argv[2])
    params.n_ctx = 2048 * params.n_parallel
    params.port = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
main()
