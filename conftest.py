"""What holds for every test, wherever it is.

With FORBID_SKIPS=1 a skipped test fails, so that nothing goes unchecked unnoticed. Only tests marked `gpu` or
`data` may still be skipped: a device, or measured data that may not be copied, cannot be installed.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import hypothesis
import pytest

# Several engines share few cores here; threads that spin while they wait would take them from each
# other (3x the time on two cores). Read by OpenMP when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Tests start many processes of the same modules: compiled once, each is ready a quarter of a second sooner.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts background commands with SIGINT ignored, and their children inherit that; tests that
# interrupt something would find it deaf.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MAY_SKIP = ("gpu", "data")
FORBIDDEN = os.environ.get("FORBID_SKIPS", "") not in ("", "0")

# A busy machine stands still for longer than any example takes. What decides whether a change is merged tries
# the same examples each time; everybody else looks for new ones.
hypothesis.settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=FORBIDDEN,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("penstock")


def pytest_collection_finish() -> None:
    """What has been imported stays; the collector would go through all of it, half a second each time."""
    gc.collect()
    gc.freeze()


def _as_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason}\nSkips are forbidden here (FORBID_SKIPS=1): install what is missing."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        FORBIDDEN
        and report.skipped
        and not hasattr(report, "wasxfail")
        and not any(item.get_closest_marker(name) for name in MAY_SKIP)
    ):
        _as_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if FORBIDDEN and report.skipped:
        _as_failure(report)
    return report
