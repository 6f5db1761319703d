"""The console's page, in a real browser, with states put before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console import states
from tests.console.conftest import Opens
from tests.console.stage import Stage
from tests.server import poll

expect = pytest.importorskip("playwright.sync_api").expect

VIEWS = ("overview", "requests", "models", "routing", "tenants", "playground", "reports")
SCRIPT = "<script>window.harmed=1</script><img src=x onerror=window.harmed=1>"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Stage, str]]:
    stage = Stage()
    yield stage, stage.start()
    stage.stop()


@pytest.fixture
def stage(served: tuple[Stage, str]) -> Stage:
    stage, _ = served
    stage.state, stage.asked, stage.broken = states.busy(), [], False
    return stage


@pytest.fixture
def url(served: tuple[Stage, str]) -> str:
    return served[1]


def live(page: Any) -> None:
    expect(page.locator("#live")).to_have_text("Live")


def test_the_overview_shows_what_happens_as_it_happens(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(url)
    live(page)
    tile = page.get_by_role("region", name="Requests", exact=True)
    expect(tile).to_contain_text("42.5 /s")
    expect(tile.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("^Requests a second over .* highest")
    )
    expect(page.get_by_role("region", name="Firing alerts")).to_contain_text("ReplicaDown")
    expect(page.get_by_role("table", name="Objectives")).to_contain_text("first token in 500 ms")
    expect(page.get_by_role("region", name="Queue by class")).to_contain_text("batch31")
    expect(page).to_have_title("(2) Overview · Penstock")
    quiet = states.busy(alerts=[])
    quiet.traffic.requests = 7.25
    stage.state = quiet
    expect(tile).to_contain_text("7.25 /s")
    expect(page.get_by_text("No alert is firing, but 1 objective is using up")).to_be_visible()
    expect(page).to_have_title("Overview · Penstock")
    expect(page.get_by_role("status").filter(has_text="No alert is firing any more.")).to_be_visible()
    page.get_by_role("link", name="Tenants").click()
    stage.state = states.busy()
    said = page.get_by_role("status").filter(has_text="ReplicaDown, QueueGrowing are firing.")
    expect(said).to_be_visible()


def test_every_view_says_what_is_missing_when_nothing_is_there(stage: Stage, url: str, opens: Opens) -> None:
    stage.state = states.idle()
    page = opens(url)
    live(page)
    for view, sentence in {
        "overview": "Nobody has asked anything yet.",
        "requests": "Requests appear here when they have ended.",
        "models": "No model is served yet.",
        "routing": "No tiers are configured",
        "tenants": "No tenant has used anything this month.",
        "playground": "Send",
        "reports": "No report is kept here yet.",
    }.items():
        page.get_by_role("navigation").get_by_role("link", name=view.capitalize()).click()
        expect(page.locator(f"#view-{view}")).to_contain_text(sentence)
        page.get_by_role("navigation").get_by_role("link", name=view.capitalize()).click()
        assert page.evaluate("scrollY") == 0  # no element has a view's name: a second click moves nothing
    expect(page.get_by_role("heading", level=1)).to_have_text("Reports")


def test_no_view_is_wider_than_a_phone(stage: Stage, url: str, opens: Opens) -> None:
    long = "x" * 90
    stage.state.models[0].replicas[0].name = stage.state.tenants[0].name = stage.state.alerts[0].name = long
    stage.state.recent[0] = states.request(
        0, model=long, tenant=long, id=long, causes=[long], outcome="failed"
    )
    stage.state.reports[0].title = long
    page = opens(url, width=360)
    for view in VIEWS:
        page.goto(f"{url}#{view}")
        live(page)
        if view == "requests":
            page.locator("[data-action=expand]").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360, view


CONTRAST = """() => {
  const read = (name) => {
    const probe = document.createElement('i');
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    probe.remove();
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const worst = {};
  for (const front of ['text', 'soft', 'link', 'good', 'warn', 'bad', 'info'])
    for (const back of ['back', 'panel', 'sunk']) {
      const [low, high] = [read(front), read(back)].sort((a, b) => a - b);
      worst[`${front} on ${back}`] = (high + 0.05) / (low + 0.05);
    }
  return worst;
}"""


def test_text_stands_out_in_the_systems_theme_and_in_the_other(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(url, color_scheme="dark")

    def weak() -> dict[str, float]:
        return {pair: ratio for pair, ratio in page.evaluate(CONTRAST).items() if ratio < 4.5}

    back = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(back) == "rgb(11, 15, 20)"
    assert weak() == {}
    page.get_by_role("button", name="Switch between dark and light").click()
    assert page.evaluate(back) == "rgb(244, 246, 248)"
    assert weak() == {}
    page.reload()
    assert page.evaluate(back) == "rgb(244, 246, 248)"


def test_a_request_opens_to_its_phases_and_stays_open(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(f"{url}#requests")
    row = page.get_by_role("button", name="auto").nth(1)
    expect(row.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"queue 430 ms, attempt \(small-1\) 150 ms, failed, attempt")
    )
    row.focus()
    page.keyboard.press("Enter")
    phases = page.get_by_role("table", name=re.compile("Phases of request req-"))
    expect(phases).to_contain_text("small-1, failed")
    stage.state = states.busy()
    stage.state.recent.insert(0, states.request(90, id="a-newer-one"))
    expect(page.locator("[data-id^=a-newer-one]")).to_be_visible()
    expect(phases).to_be_visible()
    expect(page.locator("[aria-expanded=true]")).to_be_focused()


def test_requests_of_one_id_are_told_apart(stage: Stage, url: str, opens: Opens) -> None:
    def asked(number: int) -> Any:
        return states.request(-number, id="the-same", tenant=f"tenant-{number}")

    stage.state = states.busy(recent=[asked(1)])
    page = opens(f"{url}#requests")
    rows = page.locator("#body-requests li[data-key]")
    for number in range(2, 6):
        stage.state = states.busy(recent=[asked(each) for each in range(number, 0, -1)])
        expect(rows).to_have_count(number)
        expect(rows.first).to_contain_text(f"tenant-{number}")
    rows.nth(2).get_by_role("button").click()
    expect(page.locator("[aria-expanded=true]")).to_have_count(1)
    # Those that the stream has stopped telling of stay.
    stage.state = states.busy(recent=[asked(6)])
    expect(rows).to_have_count(6)


def test_requests_are_filtered_and_held(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(f"{url}#requests")
    rows = page.locator("#body-requests li[data-key]")
    expect(rows).to_have_count(60)
    page.get_by_label("Show", exact=True).select_option("slow")
    expect(rows).to_have_count(12)
    page.get_by_label("Show", exact=True).select_option("failed")
    page.get_by_label("Find", exact=True).fill("SUPPORT")
    expect(rows).to_have_count(3)
    page.get_by_label("Find", exact=True).fill("nothing like it")
    expect(page.get_by_text("None of the 60 recent requests fits.")).to_be_visible()
    page.get_by_label("Find", exact=True).fill("")
    page.get_by_label("Show", exact=True).select_option("all")
    page.get_by_role("button", name="Pause").click()
    stage.state = states.busy(recent=[states.request(-1, id="unseen")])
    page.wait_for_timeout(400)
    expect(rows).to_have_count(60)
    page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(61)
    expect(rows.first).to_have_attribute("data-key", re.compile("^unseen "))


def test_a_replica_is_drained_after_a_second_word(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(f"{url}#models")
    page.get_by_role("button", name="Drain small-0 of small").click()
    dialog = page.get_by_role("dialog", name="Drain small-0?")
    expect(dialog).to_contain_text("finishes what it has and gets nothing new")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert stage.asked == []
    page.get_by_role("button", name="Drain small-0 of small").click()
    dialog.get_by_role("button", name="Drain").click()
    expect(page.locator("#said")).to_have_text("small-0 gets no new requests.")
    page.get_by_role("button", name="Bring back small-3 of small").click()
    poll(lambda: len(stage.asked) == 2)
    assert stage.asked == [
        {"model": "small", "replica": "small-0", "drained": True},
        {"model": "small", "replica": "small-3", "drained": False},
    ]


def test_focus_stays_where_it_is_while_figures_change(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(f"{url}#models")
    button = page.get_by_role("button", name="Drain small-1 of small")
    button.focus()
    later = states.busy()
    del later.models[0].replicas[0]
    later.models[0].replicas[0].requests = 27
    stage.state = later
    expect(page.get_by_role("table", name="Replicas of small")).to_contain_text("27 of 32")
    expect(button).to_be_focused()


def test_script_in_names_is_text(stage: Stage, url: str, opens: Opens) -> None:
    state = states.busy()
    state.recent = [states.request(1, model=SCRIPT, tenant=SCRIPT, tier=SCRIPT, code=SCRIPT, causes=[SCRIPT])]
    state.models[0].name = state.tenants[0].name = state.models[0].replicas[0].name = SCRIPT
    state.alerts[0].summary, state.alerts[0].labels = SCRIPT, {SCRIPT: SCRIPT}
    assert state.routing is not None
    state.routing.tiers[0].name = state.reports[0].title = state.gpus[0].name = SCRIPT
    state.causes = {SCRIPT: 3}
    stage.state = state
    page = opens(url)
    for view in VIEWS:
        page.goto(f"{url}#{view}")
        live(page)
        if view != "playground":
            expect(page.locator(f"#view-{view}")).to_contain_text("<script>window.harmed=1</script>")
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0


def test_a_report_is_shown_with_its_style_and_without_its_script(
    stage: Stage, url: str, opens: Opens
) -> None:
    stage.report = f"<title>r</title><style>h1{{color:red}}</style><h1>the report</h1>{SCRIPT}"
    page = opens(
        f"{url}#reports",
        allowed="Blocked script execution in 'about:srcdoc'|Content Security Policy",
        statuses=(404,),  # the picture that its script hides behind
    )
    page.get_by_role("button", name="A server under load: small").click()
    heading = page.frame_locator("#report-frame").get_by_role("heading")
    expect(heading).to_have_text("the report")
    expect(heading).to_have_css("color", "rgb(255, 0, 0)")
    assert page.frames[1].evaluate("window.harmed") is None
    page.get_by_role("button", name="Close").click()
    expect(heading).to_be_hidden()


def test_a_clock_that_was_set_back_harms_nothing(stage: Stage, url: str, opens: Opens) -> None:
    stage.state = states.busy()
    stage.state.at -= 3600
    page = opens(url)
    expect(page.get_by_role("region", name="Firing alerts")).to_contain_text("for 0 s")
    expect(page.get_by_role("region", name="Requests", exact=True)).to_contain_text("42.5 /s")


def test_the_page_comes_back_when_the_server_does(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(url, statuses=(503,))
    live(page)
    stage.broken = True
    expect(page.locator("#live")).to_have_text("Reconnecting")
    expect(page.get_by_role("alert").filter(has_text="as asked")).to_be_visible()
    stage.broken = False
    live(page)
    expect(page.locator("#notice")).to_be_hidden()


def test_everything_is_reached_with_the_keyboard(stage: Stage, url: str, opens: Opens) -> None:
    page = opens(url)
    live(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("link", name="Tenants").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_role("link", name="Tenants")).to_have_attribute("aria-current", "page")
    unnamed = """[...document.querySelectorAll('button, input, select, textarea, iframe')].filter((e) =>
      !e.textContent.trim() && !e.getAttribute('aria-label') && !e.labels?.length && !e.title).length"""
    assert page.evaluate(unnamed) == 0
