"""A real Prometheus on loopback, for tests that scrape, query and evaluate rules."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.packages import needs
from tests.server import poll


class Prometheus:
    """`with Prometheus(config, folder) as prometheus`: runs by this configuration, its data in `folder`."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    needs("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = ""

    def __enter__(self) -> Prometheus:
        try:
            poll(self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            content = json.load(answer)
        assert content["status"] == "success", content
        return content["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The samples of an instant query, with their labels."""
        data = self.get("query", query=expr)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def _is_ready(self) -> bool:
        text = self._log.read_text()
        assert self._process.poll() is None, text
        found = re.search(r'msg="Listening on" address=(\S+)', text)
        if found is None or "Server is ready" not in text:
            return False
        self.url = f"http://{found.group(1)}"
        return True
