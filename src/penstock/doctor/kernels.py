"""The native kernels: whether they are built, for which processors, and whether this is one of them."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import dataclass

from penstock import machine
from penstock.doctor.finding import Finding, Status, listed
from penstock.doctor.software import SECTION, interpreter
from penstock.engine.native.build import VARIANTS, fingerprint, library_path

BUILD = "-m penstock.engine.native.build"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Variants are for instruction sets, the best first."""

    system: bool  # there are kernels for this kind of machine at all
    suitable: tuple[str, ...]  # variants that this processor has the instructions for
    lacking: tuple[str, ...]  # instructions that it lacks for the least demanding one
    built: tuple[str, ...]
    outdated: tuple[str, ...]  # those built from other sources than there are now

    @property
    def usable(self) -> str | None:
        """The variant that the engine would take."""
        return next((name for name in self.suitable if name in self.built), None)


def look_at_kernels() -> Kernels:
    """Files alone: nothing is loaded, so a damaged one does no harm."""
    flags = machine.cpu_flags()
    lacks = {name: tuple(flag for flag in needs if flag not in flags) for name, needs in VARIANTS.items()}
    built = tuple(name for name in VARIANTS if library_path(name).exists())
    sources = fingerprint()
    return Kernels(
        system=sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64"),
        suitable=tuple(name for name, lacking in lacks.items() if not lacking),
        lacking=min(lacks.values(), key=len),
        built=built,
        outdated=tuple(name for name in built if _sources(name) != sources),
    )


def judge_kernels(
    facts: Kernels, *, loaded: bool | None, compiler: bool, device: str, precision: str
) -> Finding:
    """`precision` int8 asks for them; without them, auto is float32 on the CPU. `loaded` None: not tried."""
    build = f"{interpreter()} {BUILD}"
    # On a GPU nobody misses them.
    status: Status = "note" if device != "cpu" else "problem" if precision == "int8" else "warning"
    else_float = "models are computed in floating point by torch, which is slower on a CPU."
    if not facts.system:
        sentence = f"There are none for {platform.machine()} on {sys.platform}: {else_float}"
        return _without(status, sentence)
    if not facts.suitable:
        sentence = f"This processor lacks {listed(list(facts.lacking))}, which they need: {else_float}"
        return _without(status, sentence)
    if facts.usable is None:
        sentence = f"They are not built for {facts.suitable[0]}, which this processor has: {else_float}"
        if not compiler:
            sentence += " Building them takes a C compiler, which is not here."
            build = f"apt-get install gcc libc6-dev && {build}"
        return Finding(SECTION, "kernels", status, sentence, build)
    if loaded is False:
        place = library_path(facts.usable)
        sentence = f"{place} is damaged, or of another version of Penstock: {else_float}"
        return Finding(SECTION, "kernels", status, sentence, f"rm {shlex.quote(str(place))}; {build}")
    sentence = f"Built for {listed(list(facts.built))}; on this processor {facts.usable} computes in int8."
    if facts.usable in facts.outdated:
        sentence += " But it was built from other sources than those here."
        return Finding(SECTION, "kernels", "warning", sentence, build)
    return Finding(SECTION, "kernels", "ok", sentence)


def _without(status: Status, sentence: str) -> Finding:
    """Nothing to type: no build would help. Whoever asked for int8 is refused."""
    return Finding(SECTION, "kernels", "problem" if status == "problem" else "note", sentence)


def _sources(variant: str) -> str | None:
    """The mark of what a library was built from."""
    try:
        return library_path(variant).with_suffix(".sources").read_text()
    except OSError:
        return None
