"""The whole examination: look at everything once, then judge."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from penstock import __version__
from penstock.doctor.ask import Gpu, Probe, ask_driver, ask_torch
from penstock.doctor.finding import Finding, gib
from penstock.doctor.fit import WELL_KNOWN, Budget, Fit, fit
from penstock.doctor.hardware import Machine, judge_machine, look_at_machine
from penstock.doctor.kernels import Kernels, judge_kernels, look_at_kernels
from penstock.doctor.models import Examined, examine, judge_briefly, judge_fully
from penstock.doctor.serving import Configuration, judge_serving, look_at_configuration
from penstock.doctor.software import judge_software, look_at_compilers, look_at_packages
from penstock.doctor.text import judge_text
from penstock.errors import ModelError
from penstock.hub.cached import cached_models, locate
from penstock.hub.files import ModelFiles
from penstock.hub.known import DEFAULT, packaged

SCHEMA = 2  # of the JSON; raised when a key changes its meaning or goes away
MODELS = "Models here"


@dataclass(frozen=True, slots=True, kw_only=True)
class WellKnown:
    like: str
    parameters: int
    fits: tuple[Fit, ...]  # one for each number format


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    findings: tuple[Finding, ...]
    machine: Machine
    probe: Probe
    driver: tuple[Gpu, ...]
    configuration: Configuration
    budget: Budget
    models: tuple[Examined, ...]
    well_known: tuple[WellKnown, ...]
    kernels: Kernels

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "problem"]

    def as_json(self) -> dict[str, Any]:
        """docs/doctor.md lists the keys."""
        torch = self.probe.torch
        return {
            "schema": SCHEMA,
            "penstock": __version__,
            "can_serve": not self.problems,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "machine": dataclasses.asdict(self.machine) | {"cpus_usable": self.machine.cpus_usable},
            "torch": dataclasses.asdict(torch) if torch else None,
            "kernels": dataclasses.asdict(self.kernels) | {"usable": self.kernels.usable},
            "gpus": [dataclasses.asdict(gpu) for gpu in self.probe.gpus or self.driver],
            "configuration": {
                "file": self.configuration.file,
                "variables": self.configuration.variables,
                "unknown": self.configuration.unknown,
                "model": self.configuration.settings.model,
                "host": self.configuration.settings.host,
                "port": self.configuration.settings.port,
            },
            "budget": dataclasses.asdict(self.budget),
            "models": [dataclasses.asdict(model) | {"servable": model.servable} for model in self.models],
            "well_known": [dataclasses.asdict(model) for model in self.well_known],
        }


def examine_all(model: str | None = None, config: str | None = None) -> Report:
    """Look at this machine, the models on it, and the one that is named or configured to be served."""
    configuration = look_at_configuration(config)
    settings = configuration.settings
    wanted = model or settings.model
    machine = look_at_machine()
    kernels = look_at_kernels()
    places, complaint = _places(wanted)
    probe = ask_torch([str(files.path) for files in places.values()])
    driver = ask_driver() if not probe.gpus else ()
    budget = _budget(machine, probe, configuration)
    models = {
        name: examine(name, files, budget, settings.precision, probe.models.get(str(files.path)))
        for name, files in places.items()
    }
    text = None
    if wanted in places:
        text = judge_text(
            places[wanted], settings, f"Model {wanted}", chats=models[wanted].task == "generate"
        )
    others = [entry for name, entry in models.items() if name != wanted]
    compilers = look_at_compilers()
    findings = [
        *judge_machine(machine, model_is_here=wanted in places),
        *judge_software(probe, look_at_packages(), compilers, driver, machine, settings.threads),
        judge_kernels(
            kernels,
            loaded=probe.kernels,
            compiler=compilers["cc"] is not None,
            device=budget.device,
            precision=settings.precision,
        ),
        *judge_serving(configuration),
        *(judge_briefly(entry, MODELS, budget) for entry in others),
        *_judge_wanted(wanted, models.get(wanted), complaint, text, budget),
    ]
    formats: tuple[str, ...] = ("float32", "bfloat16")
    if kernels.usable is not None and budget.device == "cpu":
        formats = ("int8", *formats)
    return Report(
        findings=tuple(findings),
        machine=machine,
        probe=probe,
        driver=driver,
        configuration=configuration,
        budget=budget,
        models=tuple(models.values()),
        well_known=tuple(
            WellKnown(
                like=shape.like,
                parameters=shape.size.parameters,
                fits=tuple(fit(shape.size, precision, budget) for precision in formats),
            )
            for shape in WELL_KNOWN
        ),
        kernels=kernels,
    )


def _places(wanted: str) -> tuple[dict[str, ModelFiles], str | None]:
    """Every model that is here by the name to type for it, and what is wrong with the wanted one."""
    places: dict[str, ModelFiles] = {}
    for cached in cached_models():
        kind = "safetensors" if cached.path.is_dir() else "gguf"
        places[cached.name] = ModelFiles(cached.name, cached.path, kind)  # type: ignore[arg-type]
    try:
        found = locate(wanted)
    except ModelError as error:
        return places, str(error)
    if found is not None:
        # Under the name that was typed, and not twice.
        places = {name: files for name, files in places.items() if files.path != found.path}
        places[wanted] = found
    return places, None


def _budget(machine: Machine, probe: Probe, configuration: Configuration) -> Budget:
    settings = configuration.settings
    if probe.gpus and settings.device != "cpu":
        gpu = probe.gpus[0]
        return Budget(
            device="cuda",
            total=gpu.memory_total,
            available=gpu.memory_free,
            fraction=settings.memory_fraction,
            kv_bytes=settings.kv_cache_memory,
            kv_precision=settings.kv_precision,
        )
    return Budget(
        device="cpu",
        total=machine.memory_limit or machine.memory_total,
        available=machine.memory_available,
        kv_bytes=settings.kv_cache_memory,
        kv_precision=settings.kv_precision,
    )


def _judge_wanted(
    wanted: str,
    model: Examined | None,
    complaint: str | None,
    text: Finding | None,
    budget: Budget,
) -> list[Finding]:
    section = f"Model {wanted}"
    if complaint is not None:
        return [Finding(section, "model", "problem", complaint)]
    if model is None:
        return [_judge_absent(wanted, section, budget)]
    return judge_fully(model, section, budget, text)


def _judge_absent(wanted: str, section: str, budget: Budget) -> Finding:
    model = packaged(wanted)
    sentence = "It is not on this machine, so its size is not known; serving it fetches it first."
    if model is not None:
        sentence = (
            f"It is not on this machine yet; serving it fetches it first ({model.wheel_bytes / 1e6:.0f} MB)."
        )
    if model is DEFAULT and fit(WELL_KNOWN[0].size, "float32", budget).verdict == "no":
        sentence += f" It would not fit into the {gib(budget.available)} available."
        return Finding(section, "model", "problem", sentence)
    return Finding(section, "model", "note", sentence, f"penstock pull {wanted}")
