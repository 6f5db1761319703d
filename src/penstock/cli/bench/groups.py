"""Options that several commands have, gathered: which requests to send, and how to speak to a server.

A command takes a group as one parameter; `grouped_options` makes an option of each of its fields.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from penstock.bench import workloads
from penstock.bench.slo import parse_slo
from penstock.bench.workloads import Workload
from penstock.cli.bench.common import (
    Clients,
    Html,
    InputLen,
    Json,
    Names,
    OutputLen,
    PrefixLen,
    PricePerHour,
    Requests,
    Salt,
    ShowCeilings,
    check_writable,
    publish,
    published_command,
    refuse_given,
)
from penstock.cli.bench.load import (
    ApiKey,
    Arrivals,
    BurstSize,
    Endpoint,
    IgnoreEos,
    Rate,
    Slo,
    Speed,
    StallTimeout,
    Timeout,
    Trace,
    check_endpoint,
    check_timeouts,
    make_target,
)
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.ceilings import Ceilings
    from penstock.bench.statistics import Run
    from penstock.bench.target import Target

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Which requests are sent, when, and what makes them good."""

    workload: Names = None
    requests: Requests = None
    input_len: InputLen = None
    output_len: OutputLen = None
    prefix_len: PrefixLen = None
    clients: Clients = None
    rate: Rate = None
    arrivals: Arrivals = None
    burst_size: BurstSize = None
    slo: Slo = None

    @property
    def changes(self) -> dict[str, Any]:
        """What was said beside the names of workloads."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in said.items() if name not in ("workload", "slo")}

    def chosen(self) -> list[Workload]:
        """By name, with what was given beside it changed."""
        wanted: list[str | None] = [*self.workload] if self.workload else [None]
        return [workloads.choose(name, **self.changes) for name in wanted]

    def limits(self) -> dict[str, float] | None:
        """Of --slo, in seconds."""
        return None if self.slo is None else parse_slo(self.slo)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Requests as they once came, instead."""

    trace: Trace = None
    speed: Speed = 1.0

    def or_work(self, work: Work, context: typer.Context) -> list[Workload]:
        """The trace's workload, or those of `work`: never both."""
        if self.trace is None:
            refuse_given(context, ("speed",), "plays a trace; give one with --trace, or leave it out.")
            return work.chosen()
        for option, value in {"workload": work.workload, **work.changes}.items():
            if value is not None:
                name = option.replace("_", "-")
                raise ConfigError(f"--trace has requests of its own, so --{name} has no place beside it.")
        return [workloads.traced(self.trace, speed=self.speed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to speak to a server."""

    api_key: ApiKey = None
    endpoint: Endpoint = "completions"
    ignore_eos: IgnoreEos = True
    timeout: Timeout = "30m"
    stall_timeout: StallTimeout = "5m"

    @property
    def key(self) -> str | None:
        return self.api_key or os.environ.get("OPENAI_API_KEY")

    def check(self) -> None:
        """Before anything slow."""
        check_endpoint(self.endpoint)
        check_timeouts(self.timeout, self.stall_timeout)

    def target(self, url: str, model: str | None) -> Target:
        """A server that answers, by the first model it lists where none is named."""
        timeout, stall_timeout = check_timeouts(self.timeout, self.stall_timeout)
        return make_target(
            url,
            model=model,
            api_key=self.key,
            endpoint=self.endpoint,
            ignore_eos=self.ignore_eos,
            timeout=timeout,
            stall_timeout=stall_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Beside which ceilings, and where the figures go."""

    salt: Salt = None
    json_path: Json = None
    html_path: Html = None
    price_per_hour: PricePerHour = None
    ceilings: ShowCeilings = True

    def begin(self) -> str:
        """Before anything slow: whether the files can be written. The salt of the prompts."""
        check_writable(self.json_path, self.html_path)
        return self.salt or secrets.token_hex(4)

    def show(self, kind: str, subject: dict[str, Any], runs: Sequence[Run], limits: Ceilings | None) -> None:
        from penstock.bench.report import report

        content = report(
            kind=kind,
            command=published_command(),
            subject=subject,
            runs=runs,
            ceilings=limits,
            price_per_hour=self.price_per_hour,
        )
        publish(content, self.json_path, self.html_path)


GROUPS = (Work, Replay, Connection, Measuring)


def grouped_options(command: Command) -> Command:
    """The command with each group's fields as options of its own, in the group's place."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: each.annotation for name, each in signature.parameters.items() if each.annotation in GROUPS
    }

    @functools.wraps(command)
    def wrapper(*settings: Any, **given: Any) -> Any:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(*settings, **given, **made)

    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            flat.append(parameter)
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        flat += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=kinds[field.name],
            )
            for field in fields(groups[name])
        ]
    wrapper.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return wrapper
