"""The console of a server that runs, with keys: its page under load, its buttons, its playground."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import Opens
from tests.console.parrot import Parrot
from tests.gateway.door import CHAT, Door, behind, chat
from tests.server import poll
from tests.servers.http import in_a_thread

expect = pytest.importorskip("playwright.sync_api").expect

SCRIPT = "<script>window.harmed=1</script><img src=x onerror=window.harmed=1>"


@dataclass
class Scene:
    door: Door
    small: list[Parrot]
    large: Parrot
    admin: dict[str, str]
    client: dict[str, str]

    def key(self, whose: dict[str, str]) -> str:
        return whose["Authorization"].removeprefix("Bearer ")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        first, second, large = (stack.enter_context(in_a_thread(Parrot())) for _ in range(3))
        price = {"input": 1.0, "output": 2.0}
        config = {
            "models": {
                "small": behind(first.url, second.url, price=price, balance="round_robin"),
                "large": behind(large.url, price={"input": 10.0, "output": 20.0}),
            },
            "tenants": {"acme": {"monthly_budget": 100}},
        }
        folder = tmp_path_factory.mktemp("console")
        door = Door(folder, config)
        stack.callback(door.stop)
        admin, client = door.key("default", "--admin"), door.key("acme")
        poll(lambda: door.get("/console/state").status == 401)  # it has heard of them
        yield Scene(door, [first, second], large, admin, client)
    log = Path(folder / "log").read_text()
    assert "Traceback" not in log
    assert "ERROR" not in log, "a tab that is closed is no error"


@pytest.fixture
def enter(scene: Scene, opens: Opens) -> Any:
    """Opens a view with an administrator's key in the tab already."""

    def enter(view: str, **options: Any) -> Any:
        page = opens(f"{scene.door.url}/#{view}", key=scene.key(scene.admin), **options)
        expect(page.locator("#live")).to_have_text("Live")
        return page

    return enter


def test_it_opens_with_an_administrators_key_only(scene: Scene, opens: Opens) -> None:
    page = opens(f"{scene.door.url}/", statuses=(401, 403))
    dialog = page.get_by_role("dialog", name="A key is needed")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()

    def offer(key: str) -> None:
        page.get_by_label("Administrator key").fill(key)
        page.keyboard.press("Enter")

    offer("sk-wrong")
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    for odd in ("ключ", f"{scene.key(scene.admin)}\u200b", scene.key(scene.admin).replace("-", "\u2013", 1)):
        offer(odd)
        expect(dialog.get_by_role("alert")).to_contain_text("characters that no key has")
        expect(dialog).to_be_visible()
    offer(scene.key(scene.client))
    expect(dialog.get_by_role("alert")).to_contain_text("penstock keys create --admin")
    offer(scene.key(scene.admin))
    expect(page.locator("#live")).to_have_text("Live")
    expect(dialog).to_be_hidden()
    page.reload()
    expect(page.locator("#live")).to_have_text("Live")
    page.get_by_role("button", name="Forget key").click()
    expect(dialog).to_be_visible()
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]


def test_the_page_keeps_up_with_load(scene: Scene, enter: Any) -> None:
    page = enter("overview")
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            scene.door.ask("small", scene.client, stream=True)

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        tile = page.get_by_role("region", name="Requests", exact=True)
        expect(tile.locator(".figure")).not_to_have_text("0 /s")
        expect(page.get_by_role("region", name="Latest requests")).to_contain_text("acme")
        seen = page.locator("#body-overview .requests li").first.get_attribute("data-key")
        newest = page.locator("#body-overview .requests li").first
        expect(newest).not_to_have_attribute("data-key", seen)
        expect(newest.get_by_role("img", name="Timeline: ")).to_be_visible()
    finally:
        over.set()
        for client in clients:
            client.join()
    page.get_by_role("link", name="Models").click()
    expect(page.get_by_role("table", name="Replicas of small").get_by_text("healthy")).to_have_count(2)
    page.get_by_role("link", name="Tenants").click()
    expect(page.get_by_role("row", name="acme")).to_contain_text("of $100")


def test_a_drained_replica_gets_nothing_until_it_is_brought_back(scene: Scene, enter: Any) -> None:
    page = enter("models")
    replicas = page.get_by_role("table", name="Replicas of small")
    replicas.get_by_role("button", name="Drain").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(replicas.get_by_text("drained", exact=True)).to_be_visible()
    before = [parrot.asked_of for parrot in scene.small]
    for _ in range(4):
        assert scene.door.ask("small", scene.client).status == 200
    assert [parrot.asked_of for parrot in scene.small] == [before[0], before[1] + 4]
    replicas.get_by_role("button", name="Bring back").click()
    expect(replicas.get_by_text("healthy")).to_have_count(2)

    def comes_back() -> bool:
        scene.door.ask("small", scene.client)
        return scene.small[0].asked_of > before[0]

    poll(comes_back)


def test_the_playground_streams_and_compares(scene: Scene, enter: Any) -> None:
    page = enter("playground")
    page.get_by_label("Compare two models").check()
    page.locator("#model-0").select_option("small")
    page.locator("#model-1").select_option("large")
    scene.large.held = True
    page.get_by_label("Message").fill(f"one two three {SCRIPT}")
    page.keyboard.press("Enter")
    said = page.get_by_role("article", name="Answer")
    try:
        expect(said.nth(0).locator(".text")).to_have_text(f"one two three {SCRIPT}")
        expect(said.nth(1).locator(".text")).to_have_text("one")
        expect(page.get_by_role("button", name="Stop")).to_be_enabled()
    finally:
        scene.large.held = False
    expect(said.nth(1).locator(".text")).to_have_text(f"one two three {SCRIPT}")
    for number, model in enumerate(("small", "large")):
        facts = said.nth(number).locator(".facts-line")
        expect(facts).to_contain_text(f"tier {model}")
        expect(facts).to_contain_text("first token")
        expect(facts).to_contain_text("$0.")
    assert page.evaluate("window.harmed") is None
    page.get_by_label("Message").fill("and again")
    page.get_by_role("button", name="Send").click()
    expect(said).to_have_count(4)
    expect(said.nth(1).locator(".text")).to_have_text("and again")
    bodies = [request.json()["messages"] for request in scene.large.requests if request.method == "POST"]
    assert [message["role"] for message in bodies[-1]] == ["user", "assistant", "user"]


def test_the_playground_stops_and_says_what_failed(scene: Scene, enter: Any) -> None:
    page = enter("playground", statuses=(400,))
    page.locator("#model-0").select_option("large")
    scene.large.held = True
    try:
        page.get_by_label("Message").fill("one two")
        page.get_by_role("button", name="Send").click()
        answer = page.get_by_role("article", name="Answer")
        expect(answer.locator(".text")).to_have_text("one")
        page.get_by_role("button", name="Stop").click()
        expect(answer).to_contain_text("stopped")
        expect(page.get_by_role("button", name="Send")).to_be_enabled()
    finally:
        scene.large.held = False
    page.get_by_role("button", name="Clear").click()
    scene.large.refuses = True
    try:
        page.get_by_label("Message").fill("one two")
        page.get_by_role("button", name="Send").click()
        expect(answer.locator(".bad")).to_contain_text("as told")
    finally:
        scene.large.refuses = False


def test_a_clients_script_is_text_in_the_list_of_requests(scene: Scene, enter: Any) -> None:
    assert scene.door.post(CHAT, chat("hi", model=SCRIPT), scene.client).status == 404
    page = enter("requests")
    expect(page.locator("#body-requests")).to_contain_text("<script>window.harmed=1</script>")
    assert page.evaluate("window.harmed") is None


def test_a_page_that_was_open_before_the_first_key_asks_for_it(opens: Opens, tmp_path: Path) -> None:
    with in_a_thread(Parrot()) as server:
        door = Door(tmp_path, {"models": {"small": behind(server.url)}})
        try:
            page = opens(f"{door.url}/", statuses=(401,))
            expect(page.locator("#live")).to_have_text("Live")
            door.key("acme")
            expect(page.get_by_role("dialog", name="A key is needed")).to_be_visible()
        finally:
            door.stop()
