"""The server of the page, on this machine unless told otherwise."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from filelock import FileLock

from vendi_guidance.app.scoring import Scorer
from vendi_guidance.app.session import Sessions
from vendi_guidance.app.studio import Studio

LARGEST_UPLOAD = 2**28
"""Bytes of a memory that is loaded: that of 300 SDXL images takes 80 million."""

PREFIX = "vendi-guidance-app-"
LOCK = ".lock"
"""Held by the server whose temporary folder it is in."""


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for all files of the server, deleted at the end; that of a server that was
    killed is deleted by the next one.

    To be entered before Gradio is imported, which reads its environment then.
    """
    remove_abandoned(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX) as folder, FileLock(Path(folder, LOCK)):
        os.environ["GRADIO_TEMP_DIR"] = str(Path(folder, "shown"))
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        yield Path(folder)


def remove_abandoned(folder: Path) -> None:
    """Delete what this user's killed servers left in a folder that others may write to."""
    for left in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = left.lstat()
            is_own = about.st_uid == (os.getuid() if os.name == "posix" else about.st_uid)
            if S_ISDIR(about.st_mode) and is_own and (left / LOCK).is_file():
                with FileLock(left / LOCK, timeout=0):
                    shutil.rmtree(left, ignore_errors=True)


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
        OSError: the port is taken, or the host is not this machine's.
    """
    from vendi_guidance.app.actions import Actions  # they import Gradio
    from vendi_guidance.app.page import STYLE, build, theme

    sessions = Sessions(folder / "sessions")
    page = build(Actions(studio, scorer, sessions), studio.options, examples)
    look: dict[str, Any] = {"theme": theme(), "css_paths": STYLE, "footer_links": []}
    try:
        try:
            _, address, _ = page.launch(
                server_name=host,
                server_port=port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                max_file_size=LARGEST_UPLOAD,
                ssr_mode=False,
                run_history=False,
                **look,
            )
        except OSError:  # whose words are about Gradio's own settings
            at = f"--host {host}" + (f" --port {port}" if port else "")
            raise OSError(f"{at}: the port is taken, or the host is not this machine's") from None
        yield address
    finally:
        sessions.end_all()
        page.close(verbose=False)
