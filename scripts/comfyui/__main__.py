"""Runs the nodes in a ComfyUI's samplers, on a CPU, and says what holds.

    python -m scripts.comfyui path/to/ComfyUI

Run it with ComfyUI's Python. An SDXL and a Flux of ComfyUI's own classes, small and with random
weights, generate batches with and without *Diverse Batch*. For each sampler:

* diversity 0 draws what the model alone draws, bit for bit;
* diversity 1 is more diverse, by Conditional-Vendi of the latents;
* the same seed draws the same again, with the memory "this batch";
* nothing is NaN or infinite.

Then the demo model draws in the same samplers, and its looks are counted. That needs diffusers.
Exits with 1 if one of the checks fails.
"""

import argparse
import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vendi_guidance import Gaussian, vendi

ROOT = Path(__file__).parents[2]
SAMPLERS = ("euler", "euler_ancestral", "dpmpp_2m", "lcm", "heun")
SEEDS = (0, 1)
BATCH = 8
STEPS = 10
NODE = "VendiGuidanceDiverseBatch"
PROMPTS = 4  # that the demo model draws
SIGMA = 1.0  # of unit-length latents, which random models make nearly orthogonal

Draw = Callable[[Any, str, int], Tensor]
"""Latents of a model and a sampler, from a seed."""


NO_DIFFUSERS = "the demo model needs diffusers: pip install diffusers transformers"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.comfyui", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("checkout", type=Path, help="a clone of ComfyUI")
    parser.add_argument("--figures", action="store_true", help="draw those of the docs in the page")
    given = parser.parse_args()
    if not (given.checkout / "main.py").exists():
        parser.error(f"{given.checkout} is no clone of ComfyUI: it has no main.py")
    has_diffusers = importlib.util.find_spec("diffusers") is not None
    if given.figures:
        if not has_diffusers:
            parser.error(NO_DIFFUSERS)
        from scripts.comfyui.page import draw_figures

        return draw_figures(given.checkout)
    failures = in_samplers(given.checkout)
    if has_diffusers:
        demo_looks()
    else:
        print(f"demo-sdxl: skipped, {NO_DIFFUSERS}")
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


def in_samplers(checkout: Path) -> int:
    """How many checks fail."""
    start(checkout)
    import comfyui_version
    import nodes

    print(f"ComfyUI {comfyui_version.__version__}, torch {torch.__version__}")
    asyncio.run(nodes.load_custom_node(str(ROOT / "integrations" / "comfyui")))
    failures = 0
    for model, prompt, negative, name in models():
        for sampler in SAMPLERS:
            found = [*checks(model, drawing(prompt, negative, steps=STEPS), sampler)]
            said = ", ".join(text if holds else f"NOT {text}" for text, holds in found)
            print(f"{name}, {sampler}: {said}", flush=True)
            failures += sum(not holds for _, holds in found)
    return failures


def start(checkout: Path) -> None:
    """Make ComfyUI importable, on the CPU."""
    sys.path.insert(0, str(checkout.resolve()))
    sys.argv = [sys.argv[0], "--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.utils

    comfy.utils.PROGRESS_BAR_ENABLED = False


def models() -> Iterator[tuple[Any, Any, Any, str]]:
    """A model, a prompt, a negative prompt and a name of each."""
    from scripts.comfyui.models import random_flux, random_prompt, random_xl

    yield random_xl(), random_prompt(1), random_prompt(2), "random SDXL"
    yield random_flux(), random_prompt(1), random_prompt(2), "random Flux"


def drawing(prompt: Any, negative: Any, steps: int) -> Draw:
    """As the node KSampler draws."""
    import nodes

    def draw(model: Any, sampler: str, seed: int) -> Tensor:
        empty = {"samples": torch.zeros(BATCH, 4, 16, 16)}
        [found] = nodes.KSampler().sample(
            model, seed, steps, 5.0, sampler, "sgm_uniform", prompt, negative, empty
        )
        return found["samples"]

    return draw


def guided(model: Any, diversity: float) -> Any:
    import nodes

    node = nodes.NODE_CLASS_MAPPINGS[NODE]
    return node.execute(model, diversity, "conditional-vendi", "this batch", "check").result[0]


def checks(model: Any, draw: Draw, sampler: str) -> Iterator[tuple[str, bool]]:
    plain = [draw(model, sampler, seed) for seed in SEEDS]
    off = draw(guided(model, 0), sampler, SEEDS[0])
    yield "diversity 0 identical", torch.equal(off, plain[0])
    varied = [draw(guided(model, 1), sampler, seed) for seed in SEEDS]
    yield "finite", all(bool(each.isfinite().all()) for each in varied)
    again = draw(guided(model, 1), sampler, SEEDS[0])
    yield "reproducible", torch.equal(again, varied[0])
    before, after = diversity(plain), diversity(varied)
    yield f"{before:.2f} to {after:.2f} of {BATCH} different", after > before


def diversity(batches: list[Tensor]) -> float:
    """Conditional-Vendi of latents of one prompt, which is their Vendi, the mean over batches."""
    rows = (torch.nn.functional.normalize(each.flatten(1), dim=1) for each in batches)
    return fmean(float(vendi(one, Gaussian(SIGMA))) for one in rows)


def demo_looks() -> None:
    """Print how many looks the demo model generates, and how many of its images show what was asked
    for."""
    from PIL import Image

    from scripts.comfyui.demo import Demo
    from vendi_guidance.evaluation.inputs import looks_by_group, prompt_fidelity
    from vendi_guidance.features.probe import ProbeLabeler, load_probe

    demo = Demo()
    labeler = ProbeLabeler(load_probe(ROOT / "assets" / "demo-probe"))
    texts = (ROOT / "assets" / "prompts" / "demo.txt").read_text().splitlines()[:PROMPTS]
    asked = [text for text in texts for _ in range(BATCH)]
    for sampler in SAMPLERS:
        told = []
        for name, model in (("without", demo.model), ("with the node", guided(demo.model, 0.5))):
            images: list[Any] = []
            for seed, text in enumerate(texts):
                prompt, negative = map(demo.encode_from_tokens_scheduled, (text, ""))
                decoded = demo.decode(drawing(prompt, negative, steps=16)(model, sampler, seed))
                images += [Image.fromarray(one.mul(255).byte().numpy()) for one in decoded]
            labels = labeler(images, asked)
            looks = fmean(looks_by_group(asked, labels).values())
            fidelity = prompt_fidelity(labels)
            told.append(f"{looks:.2f} looks of {BATCH} {name} (fidelity {fidelity:.3f})")
        print(f"demo-sdxl, {sampler}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
