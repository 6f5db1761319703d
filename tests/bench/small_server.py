"""A server of its own process for the benchmarks' commands: stdlib only, so that it starts at once.

Answers every request in full until it has given `good` answers, and leaves the others without any.
Run as: small_server.py PORT GOOD; it prints its port (0: any that is free), then a line for each request.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

MODELS = b'{"data": [{"id": "small"}]}'


async def main(port: int, good: int) -> None:
    given = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(MODELS), MODELS))
                continue
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            wanted = json.loads(await reader.readexactly(length)).get("max_tokens", 0)
            print("request", flush=True)
            if given == good:
                await asyncio.sleep(600)
            given += 1
            events = b'data: {"choices":[{"text":"x"}]}\n\n' * wanted + b"data: [DONE]\n\n"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(events), events))

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await converse(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve_one, "127.0.0.1", port) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    # A child, as the engine is of a real server: who ends the one must end the other.
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]):
        asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
