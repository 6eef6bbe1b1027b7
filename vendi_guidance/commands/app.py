"""Generate images in the browser, without guidance and with it, side by side.

Opens on the demo model, unless --model names another. The page is served on this machine only,
unless --host says otherwise: it asks for no password.

\b
  vendi-guidance app
  vendi-guidance app --model stabilityai/stable-diffusion-xl-base-1.0 \\
      --device cuda

Ctrl-C ends it; what visitors have not downloaded is deleted.
"""

import signal
from pathlib import Path
from threading import Event
from typing import Any

import click
import transformers

from vendi_guidance.app.scoring import open_scorer
from vendi_guidance.app.server import serving, workspace
from vendi_guidance.app.studio import Studio
from vendi_guidance.checks import optional_import
from vendi_guidance.commands.cli import Command, tell
from vendi_guidance.commands.run_options import (
    PATH,
    machine_options,
    model_options,
    undistilled_option,
    what,
    where,
)
from vendi_guidance.runs.options import RunOptions

LOCAL = "127.0.0.1"
EXAMPLES = {
    "demo-faces-probe": "portrait\nportrait, bun\nportrait, red hair, sunglasses",
    "demo-probe": "waving hand\nthumbs up\nbaby, dark skin tone",
}
"""Prompts that the demos' probes know: two that leave the look open, and one that names some."""

COMMON = (
    *("model", "steps", "batch_size", "image_embedder"),
    *("host", "port", "device", "dtype"),
)


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@model_options
@undistilled_option
@what(
    "--image-embedder",
    show_default="the probe for the demo's prompts, else pixels",
    help="Features in which diversity is scored, as of evaluate.",
)
@what(
    "--prompt-embedder",
    show_default="the model's own if it is an SDXL, else none",
    help="Features of prompts, as of evaluate.",
)
@what(
    "--probe",
    type=PATH,
    show_default="MODEL-probe or demo-probe beside the model, if it is there",
    help="A classifier of images, as the demo has, to count looks by.",
)
@where("--host", default=LOCAL, help="Address to listen at: 0.0.0.0 lets other machines in.")
@where("--port", type=click.IntRange(1, 65535), show_default="a free one", help="Port.")
@machine_options
def main(
    host: str,
    port: int | None,
    image_embedder: str | None,
    prompt_embedder: str | None,
    probe: Path | None,
    **given: Any,
) -> None:
    transformers.utils.logging.disable_progress_bar()
    with workspace() as folder:
        optional_import("gradio", "gradio", "vendi-guidance app", extra="app")
        studio = Studio(RunOptions(**given))
        for remark in studio.model.remarks:
            tell(remark)
        probe = probe or probe_beside(studio.model.folder)
        scorer = open_scorer(image_embedder, prompt_embedder, probe, studio.model, given["device"])
        end = Event()
        examples = EXAMPLES.get(probe.name, "") if probe else ""
        with serving(folder, studio, scorer, examples, host, port) as address:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: end.set())
            click.echo(f"{given['model']} at {address} (Ctrl-C ends it)")
            if host != LOCAL:
                click.echo(
                    "whoever reaches this machine can generate: no password is asked", err=True
                )
            end.wait()


def probe_beside(model: Path) -> Path | None:
    """The classifier of what a demo model generates, in the same folder as the model."""
    places = [model.parent / name for name in (f"{model.name}-probe", "demo-probe")]
    return next((place for place in places if place.is_dir()), None)


if __name__ == "__main__":
    main()
