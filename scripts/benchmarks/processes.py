"""Compare the diversity of a run made by several processes with that of one made by one process.

Each seed's run is made by one process and by several on this machine's CPU, connected by gloo. The
table has means and standard deviations over seeds: looks per prompt (pairs of vendor and tone that
the probe sees in images of the emoji asked for), and Conditional-Vendi in the probe's features,
with no two prompts alike.

\b
  python -m scripts.benchmarks.processes assets/prompts/demo.txt --limit 6 --seeds 5
"""

import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import mean, stdev

import click
import torch

from scripts.demo.emoji import KERNELS
from vendi_guidance import Cosine, conditional_vendi
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.labels import looks_by_group
from vendi_guidance.features.probe import Probe, ProbeLabeler, load_probe
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.prompt_files import open_prompts

PROCESSES = 2


@click.command(help=__doc__, context_settings={"show_default": True})
@click.argument("prompts")
@click.option("--limit", type=click.IntRange(1), default=6, help="How many of the prompts.")
@click.option("--seeds", type=click.IntRange(2), default=3, help="How many runs of each kind.")
def main(prompts: str, limit: int, seeds: int) -> None:
    seeing = load_probe(asset("demo-probe"))
    words = ["--model", asset("demo-sdxl"), "--images-per-prompt", 16, "--steps", 12]
    words += ["--guidance-scale", 3, "--batch-size", 4, "--device", "cpu"]
    kinds = {
        "one process, unguided": (1, ("--diversity-scale", 0)),
        "one process": (1, ()),
        f"{PROCESSES} processes": (PROCESSES, ()),
    }
    click.echo("| | looks | | Conditional-Vendi | |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        few = Path(name) / "prompts.txt"
        few.write_text("\n".join(islice(open_prompts(prompts), limit)), encoding="utf-8")
        for kind, (count, options) in kinds.items():
            scores = []
            for seed in range(seeds):
                folder = Path(name) / f"{kind}, {seed}"
                given = (few, *words, *options, "--seed", 10_000 * seed, "--output", folder)
                make([str(word) for word in given], count)
                scores.append(scored(folder, seeing))
            columns = (f"{mean(s):.3f} | ± {stdev(s):.3f}" for s in zip(*scores, strict=True))
            click.echo(f"| {kind} | {' | '.join(columns)} |")


def make(words: list[str], processes: int) -> None:
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    generate = ["--standalone", "-m", "vendi_guidance", "generate", *words]
    subprocess.run([*start, *generate], stdout=subprocess.DEVNULL, check=True)


def scored(folder: Path, probe: Probe) -> tuple[float, float]:
    """Looks per prompt, and Conditional-Vendi."""
    batch = as_batch(folder)
    images, prompts = list(batch.images), batch.prompts or []
    asked = list(dict.fromkeys(prompts))
    looks = sum(looks_by_group(prompts, ProbeLabeler(probe)(images, prompts)).values()) / len(asked)
    which = torch.tensor([asked.index(prompt) for prompt in prompts])
    score = conditional_vendi(
        probe.embed(images), torch.nn.functional.one_hot(which).float(), KERNELS[0], Cosine()
    )
    return looks, float(score)


if __name__ == "__main__":
    main()
