"""Generate in the browser, with and without guidance side by side.

Uses the demo model unless --model names another. The page has no password, so it can be reached
only from this machine; `ssh -L 7860:127.0.0.1:7860 MACHINE` leads to it from another one.

\b
  vendi-guidance app
  vendi-guidance app --model stabilityai/stable-diffusion-xl-base-1.0 \\
      --device cuda

Ctrl-C stops the server and deletes all images that were not downloaded.
"""

import signal
from pathlib import Path
from threading import Event
from typing import Any

import click
import transformers

from vendi_guidance.app.server import serving, workspace
from vendi_guidance.app.studio import Studio
from vendi_guidance.commands.cli import Command, tell
from vendi_guidance.commands.run_options import PATH, output_option, run_options, sampling_option
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.storage.messages import optional_import

EXAMPLES = {
    "demo-photos-probe": "a photo of a shirt\na photo of a watch\na photo of a red dress",
    "demo-faces-probe": "portrait\nportrait, bun\nportrait, red hair, sunglasses",
    "demo-probe": "waving hand\nthumbs up\nbaby, dark skin tone",
}
"""Example prompts for each demo's probe: two that leave the look open, and one that names some."""

COMMON = ("model", "steps", "batch_size", "image_embedder", "port", "device", "dtype")


@click.command(cls=Command, common=COMMON, help=__doc__)
@sampling_option(
    "--image-embedder",
    show_default="the probe's, else pixels",
    help="Image features that diversity is scored on, named as in evaluate.",
)
@sampling_option(
    "--probe",
    type=PATH,
    show_default="MODEL-probe or demo-probe beside the model, if there is one",
    help="Folder of a classifier that counts looks, such as the demo's.",
)
@output_option(
    "--port",
    type=click.IntRange(1, 65535),
    show_default="the first free one from 7860",
    help="Port to listen on.",
)
@run_options
def main(port: int | None, image_embedder: str | None, probe: Path | None, **given: Any) -> None:
    transformers.utils.logging.disable_progress_bar()
    with workspace() as folder:
        optional_import("gradio", "gradio", "vendi-guidance app", extra="app")
        studio = Studio(RunOptions(**given), image_embedder, probe)
        for remark in studio.model.remarks:
            tell(remark)
        examples, end = EXAMPLES.get(studio.probe.name, "") if studio.probe else "", Event()
        with serving(folder, studio, examples, port) as address:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: end.set())
            click.echo(f"{given['model']} at {address} (Ctrl-C stops it)")
            end.wait()
