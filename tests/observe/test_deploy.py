"""What `deploy/` holds is what Penstock makes, and a real Prometheus runs by it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rules import render, rules
from penstock.observe.dashboards.board import Board
from penstock.observe.dashboards.boards import BOARDS
from penstock.observe.dashboards.build import render as render_board
from tests.observe.alerts.promtool import promises
from tests.observe.test_queries import filled
from tests.packages import needs
from tests.prometheus import Prometheus
from tests.server import Server, poll

DEPLOY = Path(__file__).parents[2] / "deploy"
RENEW = (
    "penstock observe rules -o deploy/prometheus/penstock.rules.yml && "
    "penstock observe dashboards -o deploy/grafana/dashboards"
)


def load(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text(encoding="utf-8"))


def test_the_rules_are_those_of_the_usual_objectives() -> None:
    assert (DEPLOY / "prometheus" / "penstock.rules.yml").read_text(encoding="utf-8") == render(promises()), (
        RENEW
    )


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_what_its_description_makes(board: Board) -> None:
    file = DEPLOY / "grafana" / "dashboards" / f"{board.name}.json"
    assert file.read_text(encoding="utf-8") == render_board(board), RENEW


def test_no_dashboard_is_left_over() -> None:
    files = {file.name for file in (DEPLOY / "grafana" / "dashboards").iterdir()}
    assert files == {f"{board.name}.json" for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_grafana_gets_every_query_and_no_panel_covers_another(board: Board) -> None:
    made = json.loads(render_board(board))
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    described = [panel for row in board.rows for panel in row.panels]
    assert [[target["expr"] for target in panel["targets"]] for panel in panels] == [
        [query.expr for query in panel.queries] for panel in described
    ]
    ids = [panel["id"] for panel in made["panels"]]
    assert len(ids) == len(set(ids))
    assert [variable["name"] for variable in made["templating"]["list"]] == ["datasource", *board.choices]
    cells: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & covered, panel["title"]
        cells |= covered


def test_prometheus_takes_the_configuration() -> None:
    command = [needs("promtool", "prometheus"), "check", "config", "--lint=all", "--lint-fatal"]
    done = subprocess.run(
        [*command, str(DEPLOY / "prometheus" / "prometheus.yml")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_mounts_what_is_there_and_grafana_finds_it() -> None:
    compose = load("compose.yaml")
    services = compose["services"]
    assert set(services) == {"prometheus", "grafana"}
    inside: dict[str, Path] = {}  # a path in a container: what is there
    for service in services.values():
        image, _, version = service["image"].rpartition(":")
        assert image
        assert version[0].isdigit() or version[0] == "v", "a version, so that it stays the same tomorrow"
        for volume in service["volumes"]:
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                inside[target] = DEPLOY / source
                assert inside[target].is_dir(), volume
            else:
                assert source in compose["volumes"], volume
    arguments = dict(text.removeprefix("--").split("=", 1) for text in services["prometheus"]["command"])
    config = Path(arguments["config.file"])
    assert (inside[str(config.parent)] / config.name).is_file()
    assert arguments["web.listen-address"].startswith("127.0.0.1:")

    source = load("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]
    assert source["url"] == f"http://{arguments['web.listen-address']}"
    assert (
        source["jsonData"]["timeInterval"] == load("prometheus/prometheus.yml")["global"]["scrape_interval"]
    )
    provider = load("grafana/provisioning/dashboards/penstock.yaml")["providers"][0]
    assert inside[provider["options"]["path"]] == DEPLOY / "grafana" / "dashboards"
    environment = services["grafana"]["environment"]
    assert environment["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (inside[str(home.parent)] / home.name).is_file()


# Panels with nothing to show for a server without a GPU, tiers, tenants, drafts, traces and mishaps.
QUIET = {
    "penstock-overview": {"Slow requests by cause"},
    "penstock-engine": {"Drafted tokens that were accepted"},
    "penstock-gateway": {
        *("Second tries", "Refused, by code", "Refused or failed", "Response cache", "Traces"),
        *("Waiting in servers", "KV cache of servers"),
    },
}


@contextlib.contextmanager
def watched(server: Server, folder: Path) -> Iterator[Prometheus]:
    """Prometheus by the configuration of `deploy/`, but for the server's address and the pace."""
    shutil.copy(DEPLOY / "prometheus" / "penstock.rules.yml", folder)
    config = load("prometheus/prometheus.yml")
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"{server.host}:{server.port}"]}]
    with Prometheus(config, folder) as running:
        poll(lambda: running.query("up == 1"))
        yield running


@pytest.fixture(scope="module")
def watching(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with watched(server, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def test_every_rule_runs_in_a_real_prometheus(watching: Prometheus) -> None:
    def states() -> list[tuple[str, str, str]]:
        found = [rule for group in watching.get("rules")["groups"] for rule in group["rules"]]
        return [(rule["name"], rule["health"], rule.get("lastError", "")) for rule in found]

    poll(lambda: all(health != "unknown" for _, health, _ in states()))
    assert sorted(states()) == sorted((rule.name, "ok", "") for _, rule in rules(promises()))


def test_dashboards_show_a_server_that_is_used(watching: Prometheus, server: Server) -> None:
    chat = [{"role": "user", "content": "Name three rivers."}]

    def empty() -> set[str]:
        assert server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 4}).status == 200
        return {
            f"{board.name}: {panel.title}"
            for board in BOARDS
            if board.name in QUIET
            for row in board.rows
            for panel in row.panels
            if not any(watching.query(filled(query.expr)) for query in panel.queries)
            and panel.title not in QUIET[board.name]
        }

    with contextlib.suppress(AssertionError):
        poll(lambda: not empty(), seconds=20)
    assert empty() == set()


class Failing(BaseHTTPRequestHandler):
    """A server that is well, and answers every request with an error."""

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(500)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_somebody_is_paged_for_a_model_that_fails(tmp_path: Path) -> None:
    """From requests at a real front door to a firing alert in a real Prometheus."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    config = tmp_path / "penstock.yaml"
    backend = {"openai_compatible": f"http://127.0.0.1:{upstream.server_port}"}
    config.write_text(yaml.safe_dump({"models": {"broken": {"backends": [backend]}}}), encoding="utf-8")
    server = Server(None, "--config", str(config), log=tmp_path / "log")
    firing = 'ALERTS{alertstate="firing",severity="page"}'
    try:
        with watched(server, tmp_path) as prometheus:
            poll(lambda: prometheus.query('penstock_slo_requests_total{model_name="broken"} == 0'))
            assert prometheus.query(firing) == []
            for _ in range(thresholds.LEAST_BAD + 3):
                chat = {"model": "broken", "messages": [{"role": "user", "content": "Anybody?"}]}
                assert server.post("/v1/chat/completions", chat).status >= 500
            poll(lambda: len(prometheus.query(firing)) >= 2)
            names = {labels["alertname"] for labels, _ in prometheus.query(firing)}
            assert {"PenstockErrorsBurn1h", "PenstockTtftBurn1h"} <= names
            active = prometheus.get("alerts")["alerts"]
            summaries = {alert["labels"]["alertname"]: alert["annotations"]["summary"] for alert in active}
            said = summaries["PenstockErrorsBurn1h"]
            assert said.startswith("100% of the requests for broken failed or were refused")
    finally:
        server.stop()
        upstream.shutdown()
        upstream.server_close()
