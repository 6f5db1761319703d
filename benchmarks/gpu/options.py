"""What the measurement on a GPU is asked for: its options, read and checked before anything runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from penstock.engine.config import PARTS
from penstock.errors import PenstockError

from .subjects import FREE_OPTIONS, MODELS, Subject
from .workloads import FULL

EXAMPLES = """\
examples:
  python benchmarks/gpu.py --json gpu.json                     everything, under 8 minutes on one H200
  python benchmarks/gpu.py --subject llama8b:fp8:fp8 --workloads G1,G2
  python benchmarks/gpu.py --model llama8b --ablation          what each part of a step is worth
  python benchmarks/gpu.py --model llama8b --without graphs    the workloads without one of them
  python benchmarks/gpu.py --model llama8b --profile step.txt  where the time of a decode step goes
  python benchmarks/gpu.py --start --model llama8b             from the start of a process to its first token
  python benchmarks/gpu.py --accuracy FOLDER                   what fp8 costs, on the weights of a real model
  python benchmarks/gpu.py --device cpu --model tiny --quick   that it works, where there is no GPU
"""
SUBJECTS = ("llama8b:bfloat16", "llama8b:fp8:fp8", "qwen0.6b:bfloat16")


def read_options(arguments: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--subject", action="append", default=[], metavar="MODEL[:PRECISION[:KV]]", help="may be repeated")
    add("--model", choices=list(MODELS), help="one subject, with the two options that follow")
    add("--precision", default=None)
    add("--kv-precision", default="auto")
    add("--workloads", type=_names, default=None, metavar="G1,G2", help="all five unless given")
    add("--repeats", type=int, default=2, help="after the first pass, which compiles and captures")
    add("--without", action="append", default=[], choices=PARTS, help="leave a part of a step out")
    add("--ablation", action="store_true", help="G1, G2 and G4 with each part left out in turn")
    add("--skip", type=_names, default=[], metavar="PARTS", help="of ceilings, start, baselines")
    add("--static-batch", type=_numbers, default=[16, 64], metavar="N,N", help="sizes of static batches")
    add("--start", action="store_true", help="measure only the start")
    add("--start-one", action="store_true", help=argparse.SUPPRESS)
    add("--accuracy", metavar="MODEL", help="measure only what precisions cost on a real model's weights")
    add(
        "--tokens",
        type=Path,
        metavar="FILE",
        help="the text for --accuracy as JSON, if there is no tokenizer",
    )
    add("--write-tokens", type=Path, metavar="FILE", help="write that file, where there is one, and end")
    add("--profile", type=Path, metavar="FILE", help="write where the time of a decode step goes")
    add("--set", type=_setting, action="append", default=[], metavar="OPTION=JSON", help="an engine's option")
    add("--device", default="auto", help="cuda, cuda:N, or cpu to see that it works")
    add("--quick", action="store_true", help="small versions of everything")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else ""
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(
            "torch sees no GPU here; to see that this works, give --device cpu --model tiny --quick."
        )
    options.set = dict(options.set)
    _check_files(parser, options)
    options.subjects = _subjects(parser, options)
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}.")
    options.workloads = options.workloads or (["G1", "G2", "G4"] if options.ablation else list(FULL))
    unknown = sorted({*options.workloads} - {*FULL})
    if unknown:
        parser.error(f"there is no workload {', '.join(unknown)}; there are {', '.join(FULL)}.")
    if unknown := sorted({*options.skip} - {"ceilings", "start", "baselines"}):
        parser.error(f"--skip takes ceilings, start and baselines, not {', '.join(unknown)}.")
    if options.ablation:
        options.repeats, options.skip = 1, [*options.skip, "baselines"]
    return options


def _check_files(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """What is written at the end must not fail there."""
    for name in ("json", "profile", "write_tokens"):
        file = getattr(options, name)
        if file is not None and not file.absolute().parent.is_dir():
            parser.error(f"the folder of --{name.replace('_', '-')} does not exist: {file.parent}")
    if options.accuracy is None and (options.tokens or options.write_tokens):
        parser.error("--tokens and --write-tokens are for --accuracy, which is not given.")
    if options.tokens is not None and not options.tokens.is_file():
        parser.error(f"--tokens is no file: {options.tokens}")


def _subjects(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Subject]:
    on_cpu = options.device == "cpu"
    texts = options.subject or ([] if options.model else ["tiny:float32"] if on_cpu else list(SUBJECTS))
    try:
        subjects = [Subject.read(text) for text in texts]
    except ValueError as error:
        parser.error(str(error))
    if options.model:
        precision = options.precision or ("float32" if on_cpu else "bfloat16")
        subjects.append(Subject(options.model, precision, options.kv_precision))
    if options.ablation:
        base = subjects[0]
        subjects = [base, *(dataclasses.replace(base, without=(part,)) for part in PARTS)]
    elif options.without:
        subjects = [dataclasses.replace(each, without=tuple(options.without)) for each in subjects]
    if unknown := sorted({*options.set} - FREE_OPTIONS):
        free = ", ".join(sorted(FREE_OPTIONS))
        parser.error(f"--set: an engine has no option {', '.join(unknown)} that is free here; it has {free}.")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for subject in subjects:
                subject.config(Path(folder), options.device, **options.set)
    except PenstockError as error:
        parser.error(str(error))
    return subjects


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> list[int]:
    names = _names(text)
    if not names or not all(name.isdecimal() and int(name) for name in names):
        raise argparse.ArgumentTypeError(f"must be numbers above 0, got {text!r}")
    return [int(name) for name in names]


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be OPTION=JSON, got {text!r}") from None
