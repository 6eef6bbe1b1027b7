"""Check the nodes in ComfyUI's samplers, on a CPU.

    python -m scripts.comfyui path/to/ComfyUI

Run it with ComfyUI's Python. Small models of ComfyUI's own classes with random weights, an SDXL, a
Flux and those of today's templates, generate batches with and without *Diverse Batch*:

* diversity 0 gives exactly the same latents as the model alone;
* diversity 1 is more diverse, by Conditional-Vendi of the latents;
* a seed always gives the same latents with the memory "this batch";
* all latents are finite.

Then two demo models are judged, for which diffusers must be installed: emoji with the same
samplers, which rounds move, and photographs, which are moved at the sampler's own steps. The exit
status is 1 if a check fails.
"""

import argparse
import asyncio
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
PROMPTS = 4  # of each kind, for the demo models
SIGMA = 1.0  # bandwidth for unit-length latents; those of random models are nearly orthogonal

Generate = Callable[[Any, str, int], Tensor]
"""Maps a model, a sampler and a seed to latents."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.comfyui", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("checkout", type=Path, help="a clone of ComfyUI")
    options = parser.parse_args()
    if not (options.checkout / "main.py").exists():
        parser.error(f"{options.checkout} is not a clone of ComfyUI: it has no main.py")
    failures = check_samplers(options.checkout)
    judge_demo_models()
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


def check_samplers(checkout: Path) -> int:
    """Check the random models with each sampler; returns the number of failures."""
    start(checkout)
    import comfyui_version
    import nodes

    from scripts.comfyui.models import random_flux, random_newer, random_prompt, random_xl

    print(f"ComfyUI {comfyui_version.__version__}, torch {torch.__version__}")
    asyncio.run(nodes.load_custom_node(str(ROOT / "integrations" / "comfyui")))
    generate, failures = generator(random_prompt(1), random_prompt(2), STEPS), 0
    newer = random_newer()
    for name, model in {"SDXL": random_xl(), "Flux": random_flux(), **newer}.items():
        for sampler in SAMPLERS[:1] if name in newer else SAMPLERS:
            # with random weights the newer transformers hardly follow moves, and what transformers
            # predict is so varied that it is hardly moved at the sampler's own steps
            results = [*checks(model, generate, sampler, least=1.0 if name == "SDXL" else 0.98)]
            report = ", ".join(text if passed else f"NOT {text}" for text, passed in results)
            print(f"random {name}, {sampler}: {report}", flush=True)
            failures += sum(not passed for _, passed in results)
    return failures


def start(checkout: Path) -> None:
    """Make ComfyUI importable, on the CPU."""
    sys.path.insert(0, str(checkout.resolve()))
    sys.argv = [sys.argv[0], "--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.utils

    comfy.utils.PROGRESS_BAR_ENABLED = False


def generator(prompt: Any, negative: Any, steps: int, size: int = 16) -> Generate:
    """A function that generates a batch with the node KSampler."""
    import nodes

    def generate(model: Any, sampler: str, seed: int) -> Tensor:
        empty = {"samples": torch.zeros(BATCH, 4, size, size)}
        sampling = seed, steps, 5.0, sampler, "sgm_uniform"
        [latents] = nodes.KSampler().sample(model, *sampling, prompt, negative, empty)
        return latents["samples"]

    return generate


def guided(model: Any, diversity: float) -> Any:
    import nodes

    node = nodes.NODE_CLASS_MAPPINGS[NODE]
    return node.execute(model, diversity, "conditional-vendi", "this batch", "check").result[0]


def checks(
    model: Any, generate: Generate, sampler: str, least: float
) -> Iterator[tuple[str, bool]]:
    """What each check found, and whether it passed; `least` is the ratio by which diversity must
    rise."""
    plain = [generate(model, sampler, seed) for seed in SEEDS]
    off = generate(guided(model, 0), sampler, SEEDS[0])
    yield "diversity 0 identical", torch.equal(off, plain[0])
    varied = [generate(guided(model, 1), sampler, seed) for seed in SEEDS]
    yield "finite", all(bool(latents.isfinite().all()) for latents in varied)
    again = generate(guided(model, 1), sampler, SEEDS[0])
    yield "reproducible", torch.equal(again, varied[0])
    before, after = diversity(plain), diversity(varied)
    yield f"{before:.2f} to {after:.2f} of {BATCH} different", after > least * before


def diversity(batches: list[Tensor]) -> float:
    """Mean Vendi score of batches of latents; for one prompt it equals Conditional-Vendi."""
    features = (torch.nn.functional.normalize(each.flatten(1), dim=1) for each in batches)
    return fmean(float(vendi(rows, Gaussian(SIGMA))) for rows in features)


def judge_demo_models() -> None:
    """Print what the demo models generate for prompts that leave the look open and that name it:
    looks, the share of images that show their prompt, and Vendi scores of the probe's features."""
    from scripts.comfyui.demo import Demo
    from scripts.comparison.models import MODELS

    for name, samplers in {"demo-sdxl": SAMPLERS, "demo-photos": SAMPLERS[:1]}.items():
        demo, about = Demo(name), MODELS[name]
        for sampler in samplers:
            for file in (about.prompts, about.named):
                lines = ROOT / "assets" / "prompts" / f"{file}.txt"
                texts = lines.read_text().splitlines()[:PROMPTS]
                report = []
                for title, model in (("without", demo.model), ("with", guided(demo.model, 0.5))):
                    images = generated(demo, model, texts, sampler)
                    report.append(f"{title} the node {judged(about.probe, images, texts)}")
                print(f"{name}, {sampler}, {file}: {', '.join(report)}", flush=True)


def generated(demo: Any, model: Any, texts: list[str], sampler: str) -> list[Any]:
    """`BATCH` images of each prompt, one prompt after another."""
    from PIL import Image

    images: list[Any] = []
    for seed, text in enumerate(texts):
        prompt, negative = map(demo.encode_from_tokens_scheduled, (text, ""))
        latents = generator(prompt, negative, 16, demo.size)(model, sampler, seed)
        images += map(Image.fromarray, demo.decode(latents).mul(255).byte().numpy())
    return images


def judged(name: str, images: list[Any], texts: list[str]) -> str:
    from vendi_guidance.evaluation.inputs import looks_by_group, prompt_fidelity
    from vendi_guidance.features.probe import load_probe

    prompts = [text for text in texts for _ in range(BATCH)]
    probe = load_probe(ROOT / "assets" / name)
    features = probe.embed(images)
    labels = probe.labels(features, prompts)
    looks = fmean(looks_by_group(prompts, labels).values())
    shown, varied = prompt_fidelity(labels), diversity([*torch.as_tensor(features).split(BATCH)])
    return f"{looks:.2f} looks of {BATCH}, fidelity {shown:.3f}, Vendi {varied:.2f}"


if __name__ == "__main__":
    main()
