"""Command-line flags read off the catalogue of settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.config import Option, Settings, load_settings, options
from penstock.config.values import BOOLEAN, NAMES
from penstock.errors import ConfigError

ENGINE_OPTIONS = tuple(name for name, option in options().items() if option.group == "Engine")
SERVER_OPTIONS = tuple(name for name, option in options().items() if option.group == "Server")

Command = Callable[..., Any]


def configured(*names: str, model: str = "argument") -> Callable[[Command], Command]:
    """Give a command the flags of these settings; it is called with the `Settings` they make.

    `model` says how the model is named: as the positional "argument" or by the "option" --model.
    A command with a parameter `named` also gets the model that was named on the command line, if any:
    what files and variables name is for this machine, and means nothing to a server elsewhere.
    """
    spellings: dict[str, tuple[Option, str]] = {}  # parameter name: its option and flag
    parameters: dict[str, Any] = {"model": _model(model)}
    for option in (options()[name] for name in names):
        for flag in option.flags:
            parameter = flag.removeprefix("--").replace("-", "_")
            spellings[parameter] = (option, flag)
            # Other projects' spellings work but are only mentioned in the help of ours.
            parameters[parameter] = _parameter(option, flag, hidden=flag != option.flags[0])
    parameters["config"] = Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help=_CONFIG_HELP, rich_help_panel="Configuration"),
    ]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def wrapper(**given: Any) -> Any:
            chosen = {name: given.pop(name) for name in parameters}
            config = chosen.pop("config")
            if "named" in signature.parameters:
                given["named"] = chosen["model"]
            read = functools.partial(load_settings, _flags(chosen, spellings), config=config)
            if "reread" in signature.parameters:  # the same flags, and the file as it is by then
                given["reread"] = read
            return command(read(), **given)

        own = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in list(signature.parameters.values())[1:]
            if p.name not in ("named", "reread")
        ]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in parameters.items()
        ]
        wrapper.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        return wrapper

    return decorate


def engine_options(settings: Settings) -> dict[str, Any]:
    """The keyword arguments of `LLM` that these settings hold."""
    return {name: getattr(settings, name) for name in ENGINE_OPTIONS}


def examples(*lines: tuple[str, str]) -> str:
    """An epilog: what each command does, then the command."""
    shown = [f"  [dim]# {meaning}[/dim]\n  {command}" for command, meaning in lines]
    return "\n".join(["[bold]Examples[/bold]", *shown])


_CONFIG_HELP = "Configuration file; penstock.yaml in this folder otherwise. PENSTOCK_* variables win over it."


def _flags(chosen: dict[str, Any], spellings: dict[str, tuple[Option, str]]) -> dict[str, tuple[str, Any]]:
    """Setting: the flag that was used, and its value."""
    flags = {"model": ("MODEL", chosen.pop("model"))}
    for parameter, value in chosen.items():
        if value is None or value == []:
            continue
        option, flag = spellings[parameter]
        if option.name in flags:
            raise ConfigError(f"{flags[option.name][0]} and {flag} are the same option; keep one of them.")
        flags[option.name] = (flag, value)
    return flags


def _model(how: str) -> Any:
    option = options()["model"]
    help = _with_default(option.help, option.default)
    if how == "argument":
        return Annotated[str | None, typer.Argument(metavar="MODEL", help=help, show_default=False)]
    return Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help=help, show_default=False)
    ]


def _parameter(option: Option, flag: str, *, hidden: bool) -> Any:
    others = ", ".join(option.flags[1:])
    help = _with_default(f"{option.help} Also {others}." if others else option.help, option.default)
    shared: dict[str, Any] = {
        "help": help,
        "show_default": False,
        "rich_help_panel": option.group,
        "hidden": hidden,
    }
    if option.kind is BOOLEAN:
        shared["rich_help_panel"] = "Switches"  # a pair of flags makes a wide column for all of its panel
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag.removeprefix('--')}", **shared)]
    annotation = list[str] | None if option.kind is NAMES else str | None
    return Annotated[annotation, typer.Option(flag, metavar=option.kind.metavar, **shared)]


def _with_default(help: str, default: object) -> str:
    if default == ():
        return f"{help} [dim]May be repeated.[/dim]"
    if default is None:
        shown = "auto"
    elif isinstance(default, bool):
        shown = "on" if default else "off"
    else:
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{help} [dim]Default: {shown}.[/dim]"
