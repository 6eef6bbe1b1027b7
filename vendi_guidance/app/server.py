"""The server of the page, on this machine unless told otherwise."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vendi_guidance.app.actions import Actions
from vendi_guidance.app.page import STYLE, build, theme
from vendi_guidance.app.scoring import Scorer
from vendi_guidance.app.session import Sessions
from vendi_guidance.app.studio import Studio

LARGEST_UPLOAD = 2**28
"""Bytes of a memory that is loaded: that of 300 SDXL images takes 80 million."""

MOST_WAITING = 32

SHOWN = "GRADIO_TEMP_DIR"
"""Where Gradio keeps what it shows and what is uploaded."""


@contextmanager
def serving(
    studio: Studio, scorer: Scorer, examples: str, host: str, port: int | None
) -> Iterator[str]:
    """Serve the page within this context; yields its address.

    All files of the server are in a temporary folder, which is deleted at the end.

    Args:
        examples: the prompts at first.
        host: whose visitors can come: "127.0.0.1" is this machine only.
        port: None takes a free one.

    Raises:
        OSError: the port is taken.
    """
    with TemporaryDirectory(prefix="vendi-guidance-app-") as folder:
        before = os.environ.get(SHOWN)
        os.environ[SHOWN] = str(Path(folder, "shown"))
        sessions = Sessions(Path(folder, "sessions"))
        page = build(Actions(studio, scorer, sessions), studio.options, examples)
        page.queue(max_size=MOST_WAITING)
        settings: dict[str, Any] = {"theme": theme(), "css_paths": STYLE, "footer_links": []}
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
                **settings,
            )
            yield address
        finally:
            sessions.end_all()
            page.close(verbose=False)
            os.environ.pop(SHOWN)
            if before is not None:
                os.environ[SHOWN] = before
