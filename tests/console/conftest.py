"""A real browser without a window: one for all tests of a file. Each test has a fresh profile."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.packages import needs

Opens = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the console's tests drive a browser")
    program = needs("chromium")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def opens(browser: Any) -> Iterator[Opens]:
    """Opens an address in a new profile. What the page reports as an error fails the test at its end, and so
    does every answer from 400 on whose status is not among those that the test is about. `key`: what the tab
    has already."""
    contexts, said = [], []

    def open(
        url: str,
        *,
        width: int = 1280,
        allowed: str = "^$",
        statuses: tuple[int, ...] = (),
        key: str = "",
        **options: Any,
    ) -> Any:
        # The browser itself reports every answer that is no success.
        expected = "|".join(
            [allowed, *(f"Failed to load resource.*status of {number}" for number in statuses)]
        )

        def heard(message: Any) -> None:
            if message.type in ("error", "warning") and not re.search(expected, message.text):
                said.append(message.text)

        def answered(response: Any) -> None:
            if response.status >= 400 and response.status not in statuses:
                said.append(f"{response.status} {response.url}")

        context = browser.new_context(
            viewport={"width": width, "height": 800}, reduced_motion="reduce", **options
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        if key:
            context.add_init_script(
                f"if (window === top) sessionStorage.setItem('penstock.key', {json.dumps(key)})"
            )
        page = context.new_page()
        page.on("console", heard)
        page.on("response", answered)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        return page

    yield open
    for context in contexts:
        context.close()
    assert said == []
