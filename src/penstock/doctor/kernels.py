"""The native kernels: whether they are built, for which processors, and whether this is one of them."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import dataclass

from penstock import machine
from penstock.doctor.finding import Finding, Status, listed
from penstock.doctor.software import SECTION, interpreter
from penstock.engine.native.build import VARIANTS, has_kernels, is_current, library_path
from penstock.engine.native.library import VARIABLE

BUILD = "-m penstock.engine.native.build"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Variants are for instruction sets, the best first."""

    system: bool  # there are kernels for this kind of machine at all
    suitable: tuple[str, ...]  # variants that this processor has the instructions for
    lacking: tuple[str, ...]  # instructions that it lacks for the least demanding one
    built: tuple[str, ...]
    outdated: tuple[str, ...]  # those built from other sources than there are now
    asked: str = "auto"  # the variant that PENSTOCK_NATIVE names; auto: any, off: none

    @property
    def usable(self) -> str | None:
        """The variant that the engine would take."""
        current = [name for name in self.suitable if name in self.built and name not in self.outdated]
        return next((name for name in current if self.asked in ("auto", name)), None)


def look_at_kernels() -> Kernels:
    """Files alone: nothing is loaded, so a damaged one does no harm."""
    flags = machine.cpu_flags()
    lacks = {name: tuple(flag for flag in needs if flag not in flags) for name, needs in VARIANTS.items()}
    built = tuple(name for name in VARIANTS if library_path(name).exists())
    return Kernels(
        system=has_kernels(),
        suitable=tuple(name for name, lacking in lacks.items() if not lacking),
        lacking=min(lacks.values(), key=len),
        built=built,
        outdated=tuple(name for name in built if not is_current(name)),
        asked=os.environ.get(VARIABLE) or "auto",
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
    if facts.asked not in ("auto", *facts.suitable):
        sentence = f"{VARIABLE} is {facts.asked}, so this processor can use none of them: {else_float}"
        # The engine does not start with a name that it does not know.
        known = facts.asked in ("off", *VARIANTS)
        return Finding(SECTION, "kernels", status if known else "problem", sentence, f"unset {VARIABLE}")
    if facts.usable is None:
        wanted = facts.suitable[0] if facts.asked == "auto" else facts.asked
        sentence = f"They are not built for {wanted}, which this processor has: {else_float}"
        if facts.outdated:
            sentence = f"They were built from other sources than those here: {else_float}"
        if not compiler:
            sentence += " Building them takes a C compiler, which is not here."
            build = f"apt-get install gcc libc6-dev && {build}"
        return Finding(SECTION, "kernels", status, sentence, build)
    if loaded is False:
        place = library_path(facts.usable)
        sentence = f"{place} is damaged, or of another version of Penstock: {else_float}"
        return Finding(SECTION, "kernels", status, sentence, f"rm {shlex.quote(str(place))}; {build}")
    sentence = f"Built for {listed(list(facts.built))}; on this processor {facts.usable} computes in int8."
    return Finding(SECTION, "kernels", "ok", sentence)


def _without(status: Status, sentence: str) -> Finding:
    """Nothing to type: no build would help. Whoever asked for int8 is refused."""
    return Finding(SECTION, "kernels", "problem" if status == "problem" else "note", sentence)
