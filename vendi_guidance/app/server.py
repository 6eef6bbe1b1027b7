"""The server of the page, reachable from this machine only by default."""

import errno
import os
import shutil
import socket
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
"""Maximum size of a memory file in bytes: 300 SDXL images take 80 million."""

PREFIX = "vendi-guidance-app-"
LOCK = ".lock"
"""A lock file that a running server holds in its temporary folder."""


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for all files of the server, deleted at the end; if the server is killed,
    the next one deletes it.

    Must be entered before Gradio is imported, which reads the environment at that point.
    """
    remove_abandoned(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX) as folder, FileLock(Path(folder, LOCK)):
        os.environ["GRADIO_TEMP_DIR"] = str(Path(folder, "shown"))
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        yield Path(folder)


def remove_abandoned(folder: Path) -> None:
    """Delete what killed servers of this user left in a folder that others can write to."""
    for left in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = left.lstat()
            is_own = about.st_uid == (os.getuid() if os.name == "posix" else about.st_uid)
            if S_ISDIR(about.st_mode) and is_own and (left / LOCK).is_file():
                with FileLock(left / LOCK, timeout=0):
                    shutil.rmtree(left, ignore_errors=True)


def check_address(host: str, port: int | None) -> None:
    """Raise OSError, which names the host or the port, if a server cannot listen there.

    Gradio's error names neither, and comes after five seconds for each port that it tries.
    """
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, *_, address = min(found)  # IPv4 if there is both: IPv6 may be switched off
        socket.create_server(address, family=family).close()
    except (OSError, UnicodeError) as error:
        is_port = getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
        option = f"--port {port}" if is_port else f"--host {host}"
        raise OSError(f"{option} cannot be used: {getattr(error, 'strerror', error)}") from None


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
        folder: from `workspace`.
        examples: initial prompts.
        host: address to listen on; "127.0.0.1" admits this machine only.
        port: None takes the first free one from 7860.

    Raises:
        OSError: the port or the host cannot be used; the message says which.
    """
    from vendi_guidance.app.actions import Actions  # imports Gradio
    from vendi_guidance.app.page import STYLE, build, theme

    check_address(host, port)
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
        except OSError:  # its message is about Gradio's own settings
            problem = f"--port {port} is taken" if port else f"no port is free at --host {host}"
            raise OSError(f"{problem}: name another with --port") from None
        yield address
    finally:
        sessions.end_all()
        page.close(verbose=False)
