"""The server of the page, on this machine unless told otherwise."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vendi_guidance.app.scoring import Scorer
from vendi_guidance.app.session import Sessions
from vendi_guidance.app.studio import Studio

LARGEST_UPLOAD = 2**28
"""Bytes of a memory that is loaded: that of 300 SDXL images takes 80 million."""

MOST_WAITING = 32


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for all files of the server, deleted at the end.

    To be entered before Gradio is imported, which reads its environment then.
    """
    with TemporaryDirectory(prefix="vendi-guidance-app-") as folder:
        wanted = {
            "GRADIO_TEMP_DIR": str(Path(folder, "shown")),
            "GRADIO_ANALYTICS_ENABLED": "False",
        }
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield Path(folder)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def serving(
    folder: Path,
    studio: Studio,
    scorer: Scorer,
    examples: str = "",
    host: str = "127.0.0.1",
    port: int | None = None,
) -> Iterator[str]:
    """Serve the page within this context; yields its address.

    Args:
        folder: of `workspace`.
        examples: the prompts at first.
        host: whose visitors can come: "127.0.0.1" is this machine only.
        port: None takes a free one.

    Raises:
        OSError: the port is taken.
    """
    from vendi_guidance.app.actions import Actions  # they import Gradio
    from vendi_guidance.app.page import STYLE, build, theme

    sessions = Sessions(folder / "sessions")
    page = build(Actions(studio, scorer, sessions), studio.options, examples)
    page.queue(max_size=MOST_WAITING)
    look: dict[str, Any] = {"theme": theme(), "css_paths": STYLE, "footer_links": []}
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            share=False,
            inbrowser=False,
            quiet=True,
            prevent_thread_lock=True,
            show_error=False,
            max_file_size=LARGEST_UPLOAD,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            enable_monitoring=False,
            run_history=False,
            **look,
        )
        yield address
    finally:
        sessions.end_all()
        page.close(verbose=False)
