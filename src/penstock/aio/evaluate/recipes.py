"""The recipes that can be asked for by name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from penstock.aio.evaluate.recipe import Recipe
from penstock.errors import ConfigError

# Where each is made; imported only when it is asked for, since some need packages that routing does not.
RECIPES: dict[str, str] = {
    "light": "penstock.aio.text_recipe:light",
    "encoder": "penstock.aio.text_recipe:encoder",
}


def recipe_named(name: str) -> Recipe:
    """The recipe, or an error that names those there are."""
    if name not in RECIPES:
        raise ConfigError(f"There is no recipe {name[:40]!r}; choose from {', '.join(RECIPES)}.")
    module, attribute = RECIPES[name].split(":")
    return cast(Recipe, getattr(import_module(module), attribute)())
