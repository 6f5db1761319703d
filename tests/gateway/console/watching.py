"""A server whose console is looked at."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.gateway.door import Door
from tests.server import events


@contextmanager
def serving(folder: Path, config: dict[str, Any]) -> Iterator[Door]:
    door = Door(folder, config)
    try:
        yield door
    finally:
        door.stop()


def state(door: Door, **headers: str) -> dict[str, Any]:
    reply = door.request("GET", "/console/state", headers=headers)
    assert reply.status == 200, reply.body
    return dict(reply.json())


@contextmanager
def stream(door: Door, **headers: str) -> Iterator[Iterator[Any]]:
    connection = http.client.HTTPConnection(door.host, door.port, timeout=30)
    with closing(connection):
        connection.request("GET", "/console/events", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield events(response)


def replica(door: Door, name: str) -> dict[str, Any]:
    found = [each for model in state(door)["models"] for each in model["replicas"] if each["name"] == name]
    assert len(found) == 1, found
    return dict(found[0])
