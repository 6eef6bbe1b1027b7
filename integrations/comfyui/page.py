"""What ComfyUI's page shows on nodes, and what it asks for."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from .memory import MemoryStore

FORGET = "/vendi_guidance/forget"


def show(node: Any, text: str) -> None:
    """Show a text on the node of this number."""
    if (server := _server()) is not None:
        server.send_progress_text(text, node)


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
