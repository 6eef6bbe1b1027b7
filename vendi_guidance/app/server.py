"""The server of the page, reachable from this machine only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from vendi_guidance.app.studio import Studio

LARGEST_UPLOAD = 2**28  # bytes of a memory file: 300 SDXL images take 80 million
PREFIX = "vendi-guidance-app-"


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for all files of the server, deleted at the end. Must be entered before
    Gradio is imported, which reads the environment at that point."""
    with TemporaryDirectory(prefix=PREFIX) as folder:
        os.environ["GRADIO_TEMP_DIR"] = str(Path(folder, "shown"))
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        yield Path(folder)


@contextmanager
def serving(
    folder: Path, studio: Studio, examples: str = "", port: int | None = None
) -> Iterator[str]:
    """Serve the page within this context, in a folder from `workspace`, with these initial prompts;
    yields its address. Port None is the first free one from 7860; OSError if it is taken."""
    import gradio as gr

    from vendi_guidance.app.actions import Actions
    from vendi_guidance.app.page import build

    sessions = folder / "sessions"
    sessions.mkdir()
    page = build(Actions(studio, sessions), examples)
    try:
        try:
            _, address, _ = page.launch(
                server_name="127.0.0.1",
                server_port=port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                max_file_size=LARGEST_UPLOAD,
                ssr_mode=False,
                run_history=False,
                theme=gr.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"]),
                css_paths=Path(__file__).with_name("style.css"),
                footer_links=[],
            )
        except OSError:  # its message is about Gradio's own settings
            taken = f"--port {port} is taken" if port else "no port from 7860 to 7959 is free"
            raise OSError(f"{taken}: name another with --port") from None
        yield address
    finally:
        page.close(verbose=False)
