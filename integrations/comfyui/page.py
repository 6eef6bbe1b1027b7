"""What ComfyUI's page shows on nodes, and what it asks for."""

from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from server import PromptServer

from .memory import MemoryStore

FORGET = "/vendi_guidance/forget"


def show(hidden: Any, text: str) -> None:
    """Show a text on the node with these hidden inputs; None if a program uses the node."""
    if hidden is not None:
        PromptServer.instance.send_progress_text(text, hidden.unique_id)


def add_routes(folder: Path) -> None:
    """Let the page empty memories, whose files are in `folder`."""
    if hasattr(PromptServer, "instance"):  # else a program uses the nodes
        PromptServer.instance.routes.post(FORGET)(partial(_forget, folder))


async def _forget(folder: Path, request: Any) -> Any:
    given = await request.json()
    try:
        MemoryStore(given["memory"], given["name"], folder).forget()
    except (OSError, ValueError) as error:
        return web.json_response({"error": str(error)}, status=400)
    PromptServer.instance.send_progress_text("nothing remembered", given["node"])
    return web.json_response({})
