"""What ComfyUI's page shows on nodes, what it asks for, and what it opens from saved images."""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from vendi_guidance.storage.files import DAMAGED

from .memory import MemoryStore

FORGET = "/vendi_guidance/forget"
WIDGET = 4
"""Place of the node's input `begin_with` among those that are not sockets: the last one."""


def show(node: Any, text: str) -> None:
    """Show a text on the node of this number."""
    if (server := _server()) is not None:
        server.send_progress_text(text, node)


def record(hidden: Any, begin_with: str) -> None:
    """Fill in the input `begin_with` where ComfyUI saves, with images, the workflow of a node that
    has these hidden inputs."""
    with suppress(*DAMAGED):  # those who call the API may send no workflow, or another one
        hidden.prompt[hidden.unique_id]["inputs"]["begin_with"] = begin_with
    with suppress(*DAMAGED):
        drawn = hidden.extra_pnginfo["workflow"]
        nodes = drawn["nodes"]
        *outer, own = hidden.unique_id.split(":")
        for place in outer:  # subgraphs, each inside the one before
            [kind] = [node["type"] for node in nodes if str(node["id"]) == place]
            [nodes] = [it["nodes"] for it in drawn["definitions"]["subgraphs"] if it["id"] == kind]
        [node] = [node for node in nodes if str(node["id"]) == own]
        node["widgets_values"][WIDGET:] = [begin_with]


def add_routes(folder: Path) -> None:
    """Let the page empty memories, whose files are in `folder`."""
    if (server := _server()) is not None:
        server.routes.post(FORGET)(partial(_forget, folder))


async def _forget(folder: Path, request: Any) -> Any:
    given = await request.json()
    try:
        MemoryStore(given["memory"], given["name"], folder).forget()
    except (OSError, ValueError) as error:
        return web.json_response({"error": str(error)}, status=400)
    show(given["node"], "nothing remembered")
    return web.json_response({})


def _server() -> Any:
    """ComfyUI's server; None where a program uses the nodes without it."""
    prompt_server = getattr(sys.modules.get("server"), "PromptServer", None)
    return getattr(prompt_server, "instance", None)
