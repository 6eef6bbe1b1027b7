"""Runs ComfyUI's server in its own process, and calls its HTTP API."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[2]
PACK = ROOT / "integrations" / "comfyui"
EXAMPLE: dict[str, Any] = json.loads(
    (PACK / "example_workflows" / "Diverse Batch.json").read_text()
)
ENDS = ("execution_success", "execution_error", "execution_interrupted")
SECONDS = 300
"""Time limit for the server to start, and to send its next message."""

Prompt = dict[str, dict[str, Any]]
"""A workflow in the API's format: the class and the inputs of each node."""


@dataclass
class Run:
    """The messages of the server about one run."""

    ends: str = ""  # type of the last message
    progress: list[tuple[float, float]] = field(default_factory=list)  # (value, maximum) of the bar
    cached: list[str] = field(default_factory=list)  # nodes that were not executed
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # what each node shows


@dataclass
class Server:
    """A running ComfyUI server, at the address of its page."""

    address: str

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return json.loads(self.read(path))

    def read(self, path: str) -> bytes:
        """The bytes at a path.

        Raises:
            OSError: there is no response with status 200.
        """
        with urlopen(self.address + path) as response:
            return bytes(response.read())

    def post(self, path: str, content: Any = None) -> tuple[int, Any]:
        """Post JSON; returns the status and the JSON of the response."""
        headers = {"Content-Type": "application/json"}
        request = Request(self.address + path, json.dumps(content or {}).encode(), headers)
        try:
            response = urlopen(request)
        except HTTPError as error:  # has a status and a body, too
            response = error
        with response:
            return response.status, json.loads(response.read() or "null")

    def run(self, prompt: Prompt, watch: Callable[[Run], Any] = lambda run: None) -> Run:
        """Queue a workflow and wait until it ends.

        Args:
            prompt: the workflow.
            watch: called after each message.

        Raises:
            ValueError: the server rejects the workflow.
        """
        return asyncio.run(self._run(prompt, watch))

    async def _run(self, prompt: Prompt, watch: Callable[[Run], Any]) -> Run:
        import aiohttp  # installed with ComfyUI

        run = Run()
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{self.address}/ws?clientId=check", max_msg_size=0) as socket,
        ):
            status, response = self.post("/prompt", {"prompt": prompt, "client_id": "check"})
            if status != 200:
                raise ValueError(f"ComfyUI rejects the workflow: {response}")
            while run.ends not in ENDS:
                message = await socket.receive(timeout=SECONDS)
                if message.type != aiohttp.WSMsgType.TEXT:
                    continue  # a preview image
                event = json.loads(message.data)
                data = event["data"]
                match event["type"]:
                    case "progress":
                        run.progress.append((data["value"], data["max"]))
                    case "execution_cached":
                        run.cached += data["nodes"]
                    case "executed":
                        run.outputs[data["node"]] = data["output"] or {}
                    case kind if kind in ENDS:
                        run.ends = kind
                watch(run)
        return run


@contextmanager
def serve(checkout: Path) -> Iterator[Server]:
    """Run ComfyUI's server on the CPU, with this pack and `checkpoint`.

    Args:
        checkout: a clone of ComfyUI that the current Python can run.
    """
    with tempfile.TemporaryDirectory(prefix="comfyui-") as folder:
        base = Path(folder)
        (base / "custom_nodes").mkdir()
        (base / "custom_nodes" / "vendi-guidance").symlink_to(PACK)
        (base / "custom_nodes" / "checkpoint").symlink_to(Path(__file__).parent / "checkpoint")
        checkpoints = base / "models" / "checkpoints"
        checkpoints.mkdir(parents=True)
        for node in EXAMPLE["nodes"]:
            if node["type"] == "CheckpointLoaderSimple":
                (checkpoints / node["widgets_values"][0]).touch()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--cpu", "--port", str(port), "--base-directory", folder]
        options += ["--database-url", f"sqlite:///{base}/database", "--disable-auto-launch"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (base / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "main.py", *options],
                cwd=checkout,
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            server = Server(f"http://127.0.0.1:{port}")
            _wait(server, process, base / "log")
            yield server
        finally:
            process.terminate()
            process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError):
            server.get("/system_stats")
            return
        time.sleep(0.5)
    raise RuntimeError(f"ComfyUI's server did not start:\n{log.read_text()[-3000:]}")


def as_prompt(workflow: dict[str, Any], nodes: dict[str, Any]) -> Prompt:
    """Convert a workflow that the page saved into the API's format.

    Args:
        workflow: the saved workflow.
        nodes: the server's response at /object_info.
    """
    sources = {link: [str(start), output] for link, start, output, *_ in workflow["links"]}
    prompt: Prompt = {}
    for node in workflow["nodes"]:
        if node["type"] not in nodes:
            continue  # a note
        schema = nodes[node["type"]]["input"]
        linked = {entry["name"]: sources.get(entry["link"]) for entry in node["inputs"]}
        inputs = {name: source for name, source in linked.items() if source}
        values = iter(node["widgets_values"])
        for name, options in {**schema["required"], **schema.get("optional", {})}.items():
            if name not in linked:
                inputs[name] = next(values)
                if len(options) > 1 and options[1].get("control_after_generate"):
                    next(values)
        prompt[str(node["id"])] = {"class_type": node["type"], "inputs": inputs}
    return prompt
