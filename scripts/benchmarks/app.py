"""What the app adds to a picture: drawn through its page, and by two runs of `generate`, in turn.

Serves the demo model on this machine, asks for pictures as a browser does, and makes the same ones
as `generate` does, without guidance and with it. Scores are not included: the page shows them after
the pictures.

\b
  python -m scripts.benchmarks.app
"""

from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

import click
import torch
from gradio_client import Client

from scripts.benchmarks.measuring import machine
from vendi_guidance.app.scoring import open_scorer
from vendi_guidance.app.server import serving, workspace
from vendi_guidance.app.studio import Studio
from vendi_guidance.commands.app import EXAMPLES, app_options
from vendi_guidance.guidance.settings import STRENGTH
from vendi_guidance.runs.series import Series
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.assets import asset

BATCH = 8
UNSET = ("variant", "steps", "guidance_scale", "negative_prompt", "height", "width", "offload")


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pictures", type=click.IntRange(1, 16), default=16, help="Of each prompt.")
@click.option("--times", type=click.IntRange(1), default=3, help="How often; the best counts.")
@click.option("--threads", type=click.IntRange(1), default=2)
def main(pictures: int, times: int, threads: int) -> None:
    torch.set_num_threads(threads)
    cpu = torch.device("cpu")
    given = {**dict.fromkeys(UNSET), "model": str(asset("demo-sdxl")), "batch_size": BATCH}
    given |= {"device": "cpu", "dtype": "float32", "vae_tiling": False, "vae_slicing": False}
    with workspace() as folder:
        studio = Studio(app_options(given))
        scorer = open_scorer(None, None, asset("demo-probe"), studio.model, "cpu")
        prompts, runs = folder / "prompts.txt", count()
        prompts.write_text(EXAMPLES)
        options = replace(
            studio.options, prompts=str(prompts), images_per_prompt=pictures, output=folder
        )
        series = Series(options, Stop())

        def by_generate() -> float:
            begun = perf_counter()
            for strength in (0.0, STRENGTH):
                series.draw(f"run-{next(runs)}", {"strength": strength})
            return perf_counter() - begun

        with serving(folder, studio, scorer, EXAMPLES) as address:
            asked = (EXAMPLES, pictures, STRENGTH, 0, options.steps, options.guidance_scale, BATCH)
            total = pictures * len(EXAMPLES.splitlines())

            def by_page() -> float:
                # a visitor of their own: what others drew is not avoided, as in a run
                client = Client(address, verbose=False, download_files=False)
                begun, done = perf_counter(), None
                for shown in client.submit(*asked, api_name="/generate"):
                    if done is None and all(shows(one, total) for one in shown[:2]):
                        done = perf_counter() - begun  # the scores follow
                if done is None:
                    raise RuntimeError("the page has not shown all pictures")
                return done

            by_generate()  # loads the model
            found = [(by_page(), by_generate()) for _ in range(times)]
    page, generate = map(min, zip(*found, strict=True))
    click.echo(machine(cpu))
    each = 2 * total
    click.echo(
        f"{page / each:.3f} s a picture on the page, {generate / each:.3f} s by "
        f"generate: {page / generate:.3f} times as long"
    )


def shows(gallery: Any, total: int) -> bool:
    """Whether an update of a gallery has so many pictures."""
    return isinstance(gallery, dict) and len(gallery.get("value") or []) == total


if __name__ == "__main__":
    main()
