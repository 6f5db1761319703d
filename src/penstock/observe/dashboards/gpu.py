"""GPUs: memory, work, bandwidth, heat, power, faults."""

from __future__ import annotations

from penstock.observe.alerts.gpu import MEMORY_IN_USE
from penstock.observe.dashboards.board import WINDOW, Board, Query, Row, panel
from penstock.observe.promql import increase, rate

_GPU = 'instance=~"$instance"'
_NAME = "{{instance}} {{gpu}}"


def _now(metric: str) -> tuple[Query, ...]:
    return (Query(f"{metric}{{{_GPU}}}", _NAME),)


_TOKENS = rate("penstock_engine_generated_tokens_total", WINDOW, "instance", _GPU)

BOARD = Board(
    name="penstock-gpu",
    title="Penstock: GPU",
    help="What the GPUs' driver says; empty where there are none.",
    choices={"instance": "label_values(penstock_gpu_memory_total_bytes, instance)"},
    rows=(
        Row(
            "Memory",
            (
                panel(
                    "Memory taken",
                    Query(
                        f"penstock_gpu_memory_used_bytes{{{_GPU}}}\n"
                        f"/ penstock_gpu_memory_total_bytes{{{_GPU}}}",
                        _NAME,
                    ),
                    unit="percentunit",
                    most=1,
                    help="Engines reserve the memory of their KV cache when they start.",
                ),
                panel(
                    "Memory in use",
                    Query(
                        f"{MEMORY_IN_USE}\nand on (instance, gpu) penstock_gpu_memory_total_bytes{{{_GPU}}}",
                        _NAME,
                    ),
                    unit="percentunit",
                    most=1,
                    steps=((0.85, "orange"), (0.9, "red")),
                    help="Without KV blocks that no request holds; alerts from 85% on.",
                ),
                panel("Memory taken, bytes", *_now("penstock_gpu_memory_used_bytes"), unit="bytes"),
            ),
        ),
        Row(
            "Work",
            (
                panel(
                    "Utilisation",
                    *_now("penstock_gpu_utilisation_ratio"),
                    unit="percentunit",
                    most=1,
                    help="Share of time in which any kernel ran: 70 to 90% is good.",
                ),
                panel(
                    "Multiprocessors at work",
                    *_now("penstock_gpu_sm_active_ratio"),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Tensor cores at work",
                    *_now("penstock_gpu_tensor_active_ratio"),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Memory bandwidth",
                    *_now("penstock_gpu_memory_bandwidth_ratio"),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Weights read",
                    Query(rate("penstock_engine_read_bytes_total", WINDOW, "instance", _GPU), "{{instance}}"),
                    unit="Bps",
                    help="Memory was read at least so fast, on any device.",
                ),
                panel(
                    "Tokens a second and GPU",
                    Query(
                        f"{_TOKENS} / count by (instance) (penstock_gpu_memory_total_bytes{{{_GPU}}})",
                        "{{instance}}",
                    ),
                    unit="si:tok/s",
                ),
            ),
        ),
        Row(
            "Heat and power",
            (
                panel(
                    "Temperature",
                    *_now("penstock_gpu_temperature_celsius"),
                    unit="celsius",
                    steps=((80, "orange"), (90, "red")),
                ),
                panel(
                    "Power",
                    *_now("penstock_gpu_power_watts"),
                    Query(f"penstock_gpu_power_limit_watts{{{_GPU}}}", f"{_NAME} limit"),
                    unit="watt",
                ),
                panel(
                    "Joules a token",
                    Query(
                        f"{rate('penstock_gpu_energy_joules_total', WINDOW, 'instance', _GPU)} / {_TOKENS}",
                        "{{instance}}",
                    ),
                    unit="joule",
                ),
                panel("Clock", *_now("penstock_gpu_sm_clock_hertz"), unit="hertz"),
                panel(
                    "Held down, by reason",
                    Query(f"max by (gpu, reason) (penstock_gpu_throttled{{{_GPU}}})", "{{gpu}} {{reason}}"),
                    most=1,
                ),
                panel(
                    "Faults (XID)",
                    Query(
                        increase("penstock_gpu_xid_errors_total", "1h", "instance, gpu, xid", _GPU),
                        f"{_NAME} XID {{{{xid}}}}",
                    ),
                    steps=((1, "red"),),
                ),
            ),
        ),
    ),
)
