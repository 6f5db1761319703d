"""llama.cpp's own server, run inside its environment: `python ... MODEL ALIAS PORT SLOTS CONTEXT THREADS`."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main() -> None:
    model, alias, *numbers = sys.argv[1:]
    port, slots, context, threads = map(int, numbers)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {alias}
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context * slots  # tokens that all slots share out
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
main()
