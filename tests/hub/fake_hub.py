"""As much of a model hub's HTTP interface as the real `huggingface_hub` package asks for, on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Repositories as {"org/name": {"file": bytes}}; `fetched` lists the files whose content was sent."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        self.fetched: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._serve(body=False)

            def do_GET(self) -> None:
                self._serve(body=True)

            def _serve(self, body: bool) -> None:
                parts = urlsplit(self.path).path.strip("/").split("/")
                if parts[:2] == ["api", "models"]:
                    self._describe("/".join(parts[2:4]), parts[4:])
                elif len(parts) > 4 and parts[2] == "resolve":
                    self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), body)
                else:
                    self._refuse("RepoNotFound")

            def _describe(self, repo: str, rest: list[str]) -> None:
                files = repositories.get(repo)
                if repo == "org/gated":
                    return self._refuse("GatedRepo", 403)
                if files is None:
                    return self._refuse("RepoNotFound")
                if len(rest) > 1 and rest[1] not in ("main", "v2", COMMIT):
                    return self._refuse("RevisionNotFound")
                if rest[:1] == ["tree"]:
                    listing = [
                        {"type": "file", "path": name, "size": len(data), "oid": _etag(data)}
                        for name, data in files.items()
                    ]
                    return self._json(listing)
                siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                return self._json({"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []})

            def _file(self, repo: str, revision: str, name: str, body: bool) -> None:
                data = repositories.get(repo, {}).get(name)
                if data is None:
                    return self._refuse("EntryNotFound")
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", f'"{_etag(data)}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.end_headers()
                if body:
                    hub.fetched.append(name)
                    self.wfile.write(data)
                return None

            def _json(self, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _refuse(self, code: str, status: int = 404) -> None:
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[FakeHub]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
