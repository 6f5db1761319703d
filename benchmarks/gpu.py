"""Measure the engine on one GPU: models at their real shapes with random weights, workloads G1 to G5.

Every figure stands beside its limit, made of ceilings that are measured in the same run, and beside what it
is held against. A workload is run once without counting (kernels are compiled, graphs captured), then as
often as `--repeats` says, each time with prompts that were never seen.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from gpu import accuracy, ceilings, profiling, report, start
from gpu.driving import Baseline, drive, figure, first_token, one_at_a_time, static_batches
from gpu.limits import limit
from gpu.options import read_options
from gpu.subjects import Subject
from gpu.workloads import FULL, QUICK, Workload

from penstock.bench.machine import machine, versions
from penstock.bench.processes import process_age
from penstock.engine.core import EngineCore
from penstock.errors import PenstockError

SEVERAL = {"G2": 5}  # short workloads are measured more often
PROFILED = (1, 32, 256)  # sequences in a step
BASELINE_SECONDS = 8.0  # for each of them, at least
BEGAN = time.perf_counter()


class Measurement:
    """What was found so far; written out after every part, so that nothing is lost if a later one fails."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.device = torch.device(options.device)
        self.ceilings = ceilings.Ceilings(str(self.device))
        self.results: list[report.Result] = []
        self.failures: list[str] = []
        self.content: dict[str, Any] = {
            "command": shlex.join(["python", *sys.argv]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {**machine(), **_gpu(self.device)},
            "versions": {**versions(), "cuda": torch.version.cuda, "triton": _triton()},
        }

    def save(self) -> None:
        self.content["results"] = [result.as_json() for result in self.results]
        self.content["failures"] = self.failures
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(self.content, indent=1))

    def failed(self, what: str) -> None:
        """The exception that is being handled ends this part alone."""
        traceback.print_exc()
        self.failures.append(f"{what}: {sys.exc_info()[1]!r}")
        self.save()

    def measure_ceilings(self, subjects: Sequence[Subject]) -> None:
        if self.device.type != "cuda":
            return
        say("ceilings")
        models: dict[str, set[str]] = {}
        for subject in subjects:
            models.setdefault(subject.model, set()).add(subject.precision)
        self.ceilings = ceilings.measure(models, self.device)
        self.content["ceilings"] = dataclasses.asdict(self.ceilings)
        show(report.ceilings_lines(self.ceilings))

    def measure_start(self, subject: Subject) -> None:
        say(f"start of {subject.name}")
        arguments = ["--subject", subject.spelled, "--device", str(self.device)]
        arguments += [word for part in subject.without for word in ("--without", part)]
        options = [f"{name}={json.dumps(value)}" for name, value in self.options.set.items()]
        arguments += [word for option in options for word in ("--set", option)]
        found = start.measure(Path(__file__).resolve(), arguments, self.folder / "start")
        self.content["start"] = {"subject": subject.name, **found}
        show(report.start_table(found))

    def run_subject(self, subject: Subject, workloads: Sequence[Workload], *, repeats: int) -> None:
        """Its workloads, and what else is asked for on the same engine."""
        say(f"{subject.name}: loading")
        core = self.engine(subject)
        say(f"{subject.name}: loaded in {core.info.load_seconds:.1f} s")
        gc.collect()
        gc.freeze()  # as an engine's process does
        self.content.setdefault("engines", {})[subject.name] = dataclasses.asdict(core.info)
        for workload in workloads:
            try:
                self.results.append(self.run_workload(core, subject, workload, repeats))
            except Exception:
                self.failed(f"{subject.name} {workload.name}")
            self.save()
        self.content.setdefault("stats", {})[subject.name] = dataclasses.asdict(core.stats())
        wanted = "baselines" not in self.options.skip and "baselines" not in self.content
        ours = [each for each in self.results if each.subject == subject and each.workload.name == "G1"]
        if wanted and ours and not subject.without:
            self.run_baselines(core, ours[0])
        if self.options.profile is not None and "profile" not in self.content:
            self.run_profile(core, subject)
        self.save()

    def run_workload(
        self, core: EngineCore, subject: Subject, workload: Workload, repeats: int
    ) -> report.Result:
        found, values = [], []
        times = 1 + (max(repeats, SEVERAL.get(workload.name, 0)) if repeats > 1 else repeats)
        for number in range(times):
            requests = workload.requests(core.info.vocab_size, salt=str(number))
            gc.collect()
            found.append(drive(core, requests))
            values.append(figure(workload, found[-1]))
            kind = "first" if number == 0 else f"{number} of {times - 1}"
            say(f"{subject.name} {workload.name} {kind}: {values[-1]:,.2f} {workload.unit}")
        core.check()
        return report.Result(
            subject=subject,
            workload=workload,
            cold=values[0],
            values=tuple(values[1:]),
            walls=tuple(each.wall for each in found[1:]),
            steps=len(found[-1].times),
            cached=found[-1].cached,
            limit=limit(workload, subject, self.ceilings),
            limit_unshared=limit(workload, subject, self.ceilings, share=False),
        )

    def run_baselines(self, core: EngineCore, ours: report.Result) -> None:
        found: list[Baseline] = []
        seconds = 0.0 if self.options.quick else BASELINE_SECONDS
        try:
            for size in self.options.static_batch:
                say(f"{ours.subject.name} G1 in static batches of {size}")
                found.append(static_batches(core, ours.workload, size, seconds=seconds, salt="0"))
            say(f"{ours.subject.name} G1 one at a time")
            found.append(one_at_a_time(core, ours.workload, seconds=seconds, salt="0"))
        except Exception:
            self.failed(f"{ours.subject.name} baselines")
        self.content["baselines"] = {
            "subject": ours.subject.name,
            "continuous": ours.value,
            "others": [
                {**dataclasses.asdict(each), "times_as_fast": ours.value / each.tokens_per_second}
                for each in found
            ],
        }
        show(report.baselines_table(ours.subject.name, ours.value, found))

    def run_profile(self, core: EngineCore, subject: Subject) -> None:
        found = []
        for batch in PROFILED:
            say(f"{subject.name}: profile of {batch}")
            try:
                found.append(profiling.decode_step(core, min(batch, core.info.max_running)))
            except Exception:
                self.failed(f"{subject.name} profile of {batch}")
        lines = [subject.name, *(line for each in found for line in ["", *each.lines()])]
        self.options.profile.write_text("\n".join(lines) + "\n")
        self.content["profile"] = [dataclasses.asdict(each) for each in found]

    def engine(self, subject: Subject) -> EngineCore:
        return EngineCore(subject.config(self.folder, str(self.device), **self.options.set))


def say(line: str) -> None:
    sys.stderr.write(f"[{time.perf_counter() - BEGAN:6.1f} s] {line}\n")
    sys.stderr.flush()


def show(lines: Sequence[str]) -> None:
    sys.stdout.write("\n".join(["", *lines, ""]))
    sys.stdout.flush()


def measure(options: argparse.Namespace, folder: Path) -> int:
    run = Measurement(options, folder)
    subjects = options.subjects
    parts = {
        "ceilings": lambda: run.measure_ceilings(subjects),
        "start": lambda: run.measure_start(subjects[0]),
    }
    if run.device.type != "cuda" or options.ablation:
        parts.pop("start")
    for name, part in parts.items():
        if name not in options.skip:
            try:
                part()
            except Exception:
                run.failed(name)
    workloads = [(QUICK if options.quick else FULL)[name]() for name in options.workloads]
    if options.start:
        workloads, subjects = [], []
    for subject in subjects:
        try:
            run.run_subject(subject, workloads, repeats=options.repeats)
        except Exception:
            run.failed(subject.name)
        gc.unfreeze()
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
    if run.results:
        show(report.results_table(run.results))
    for failure in run.failures:
        say(f"failed: {failure}")
    run.save()
    return 1 if run.failures else 0


def measure_accuracy(options: argparse.Namespace) -> int:
    tokens = (
        accuracy.tokens_of(options.accuracy)
        if options.tokens is None
        else accuracy.read_tokens(options.tokens)
    )
    if options.write_tokens is not None:
        options.write_tokens.write_text(json.dumps(tokens))
        return 0
    most = 2 if options.quick else 32
    found = accuracy.measure(options.accuracy, tokens, options.device, say, most=most)
    show(report.accuracy_table(found))
    if options.json is not None:
        content = {"command": shlex.join(["python", *sys.argv]), "versions": versions(), "accuracy": found}
        options.json.write_text(json.dumps(content, indent=1))
    return 0


def start_one(options: argparse.Namespace, folder: Path) -> int:
    """The first token of a fresh process; what took how long goes to standard output."""
    imported, began = process_age(os.getpid()), time.perf_counter()
    (subject,) = options.subjects
    core = EngineCore(subject.config(folder, options.device, **options.set))
    loaded = time.perf_counter()
    first_token(core, core.info.vocab_size)
    done = time.perf_counter()
    parts = {"import": imported, "load": loaded - began, "first_token": done - loaded}
    sys.stdout.write(json.dumps(parts) + "\n")
    return 0


def _gpu(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    return {"gpu": found.name, "gpu_memory_gib": round(found.total_memory / 2**30, 1)}


def _triton() -> str:
    try:
        import triton
    except ImportError:
        return "not installed"
    return str(triton.__version__)


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments, __doc__)
    torch.manual_seed(0)
    try:
        if options.accuracy is not None:
            return measure_accuracy(options)
        with tempfile.TemporaryDirectory() as folder:
            return (start_one if options.start_one else measure)(options, Path(folder))
    except PenstockError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
