"""Runs the app on a tiny model, and sends its server what a browser's page would send."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from vendi_guidance.app.server import serving, workspace
from vendi_guidance.app.studio import Request, Studio
from vendi_guidance.runs.plan import RunOptions

ENDS = ("process_completed", "unexpected_error", "refused")
"""Types of the last message of a server about an action."""


def studio_of(folder: Path, probe: Path | None = None) -> Studio:
    """A studio with the model in a folder, on the CPU, with two steps."""
    given: dict[str, Any] = {"model": str(folder), "steps": 2, "batch_size": 2, "device": "cpu"}
    return Studio(RunOptions(**given, dtype="float32"), probe=probe)


def request_of(text: str | None = "cat\ndog", **changes: Any) -> Request:
    return Request(text, **{"images": 2, "diversity": 0.5, "seed": 0, **changes})


def usual(**changes: Any) -> list[Any]:
    """Values of the page's fields, in order."""
    return list({"prompts": "cat", "images": 1, "diversity": 0.5, "seed": 0, **changes}.values())


class Visitor:
    """A client that behaves like one browser page of the server at an address."""

    def __init__(self, address: str) -> None:
        self.key = uuid4().hex
        self.http = httpx.Client(base_url=address, timeout=200, trust_env=False)
        config = self.http.get("config").json()
        self.actions = {one["api_name"]: one["id"] for one in config["dependencies"]}

    def call(self, action: str, *data: Any, event: Any = None) -> dict[str, Any]:
        """The last message about an action: has "success", and "data" or "error" in "output"."""
        for message in self.messages(action, *data, event=event):
            last = message
        return last

    def messages(self, action: str, *data: Any, event: Any = None) -> Iterator[dict[str, Any]]:
        """All messages about an action, until it ends."""
        body = {"fn_index": self.actions[action], "session_hash": self.key, "event_data": event}
        # httpx's own encoder rejects lone surrogates and infinity
        sent = json.dumps({**body, "data": list(data)})
        headers = {"content-type": "application/json"}
        joined = self.http.post("gradio_api/queue/join", content=sent, headers=headers)
        if joined.status_code != 200:
            yield {"msg": "refused", "success": False, "output": {"error": joined.text}}
            return
        path = f"gradio_api/queue/data?session_hash={self.key}"
        with self.http.stream("GET", path) as stream:
            for line in stream.iter_lines():
                message = json.loads(line.removeprefix("data: ")) if line else {}
                if message:
                    yield message
                if message.get("msg") in ENDS:
                    return


@contextmanager
def served(model: Path, probe: Path, examples: str = "cat", **where: Any) -> Iterator[str]:
    """Run a server in this process; yields its address."""
    studio = studio_of(model, probe)
    with workspace() as folder, serving(folder, studio, examples, **where) as address:
        yield address


@contextmanager
def app_process(*words: object, **given: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `vendi-guidance app` with these options and environment variables in its own process,
    which is killed at the end; yields the process and the address of its page."""
    command = [sys.executable, "-m", "vendi_guidance", "app", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | {k: str(v) for k, v in given.items()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert " at http://127.0.0.1:" in line, line
        yield process, line.split()[2]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def visitors(address: str, count: int = 1) -> Iterator[list[Visitor]]:
    made = [Visitor(address) for _ in range(count)]
    try:
        yield made
    finally:
        for visitor in made:
            visitor.http.close()
