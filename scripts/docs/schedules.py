"""Writes a table of docs/your-model.md: which noise levels the schedules of known models have.

`python -m scripts.docs.schedules` updates the page. The levels follow from the schedulers'
configurations in schedules.json; no weights are needed.
"""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import click
import diffusers
import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu

from scripts.benchmarks.measuring import table
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.ways.budget import share_of_cfg
from vendi_guidance.guidance.ways.level import level_of
from vendi_guidance.guidance.ways.own_steps import ABOVE
from vendi_guidance.guidance.ways.perturbed import PerturbedPrompt
from vendi_guidance.guidance.ways.rounds import InRounds

PAGE = Path(__file__).parents[2] / "docs" / "your-model.md"
MODELS: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
SHOWN = 4  # levels that are listed, from the first on

BEFORE = "noise to signal before each step"
COLUMNS = "model", BEFORE, "own steps", "wanted", "rounds at (step)", "stock", "in rounds"


class Schedule(NamedTuple):
    """A model's levels, as noise-to-signal ratios, and its rounds at the default settings."""

    starts: list[float]  # levels before each step
    own_steps: int  # those after which samples are moved, if they are guided
    wanted: float  # level at which rounds are wanted
    made: float  # level at which they are made
    step: int  # index of the step that they repeat
    evaluations: int  # of the network for each sample, without guidance
    guided: int  # with guidance


def scheduler_of(model: dict[str, Any]) -> Any:
    """A model's scheduler with the timesteps that its pipeline would set."""
    scheduler = getattr(diffusers, model["scheduler"])(**model["config"])
    steps = model["steps"]
    arguments: dict[str, Any] = {"num_inference_steps": steps}
    if "timesteps" in model:
        arguments = {"timesteps": model["timesteps"]}
    elif "sigmas" in model:
        arguments = {"sigmas": np.linspace(1.0, 1 / steps, steps)}
    if "mu" in model:
        arguments["mu"] = _mu(model, scheduler.config)
    scheduler.set_timesteps(**arguments)
    return scheduler


def _mu(model: dict[str, Any], config: Any) -> float:
    """The dynamic shift for the image size, as the model's pipeline computes it."""
    tokens = (model["size"] // 16) ** 2
    if model["mu"] == "compute_empirical_mu":
        return compute_empirical_mu(tokens, model["steps"])
    names = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
    return calculate_shift(tokens, *(config[name] for name in names))


def schedule_of(model: dict[str, Any]) -> Schedule:
    """Run a model's scheduler step by step, and find the step whose rounds are due."""
    scheduler, levels = scheduler_of(model), []
    sample = torch.zeros(1, 1, 2, 2)
    with Watch(scheduler) as watch:
        for timestep in scheduler.timesteps:
            if hasattr(scheduler, "scale_model_input"):
                scheduler.scale_model_input(sample, timestep)
            scheduler.step(torch.zeros_like(sample), timestep, sample)
            levels.append(watch.levels)
    settings, latents = Rounds(), torch.empty(1, *model["latent"], device="meta")
    starts, per_step = [before.ratio for before, _ in levels], 1 + model["cfg"]
    count, nothing = len(levels), cast("Any", None)
    facts = Facts(
        steps=count,
        scheduled=count,
        start=starts[0],
        evaluations=per_step,
        wanted=(wanted := settings.level * latents.numel() ** 0.5),
        images=2,
        remembered=0,
        is_joint=False,
        has_prompt=True,
        has_fixed_end=False,
        is_continued=False,
        score=nothing,
        step=nothing,
    )
    way = (PerturbedPrompt if facts.is_distilled else InRounds)(facts, settings)
    own_steps = sum(ratio > ABOVE for ratio in starts[:-1])
    for index, between in enumerate(levels):
        network: Any = SimpleNamespace(levels=between, at=watch.at)
        step = Step(index, count, latents, network=network)
        if way.is_due(step):
            # the first step has CFG, and those after rounds do at high noise
            with_cfg = 1 + sum(share_of_cfg(it, settings) > 0 for it in starts[index + 1 :])
            guided = count + model["cfg"] * with_cfg + way.evaluations()
            made = level_of(step, facts).ratio
            return Schedule(starts, own_steps, wanted, made, index, count * per_step, guided)
    raise ValueError(f"no step of {model['name']} is due")


def rows() -> str:
    """The page's table, without models whose levels are those of others."""
    cells = []
    for model in (it for it in MODELS if it.get("row", True)):
        starts, own_steps, wanted, made, step, *costs = schedule_of(model)
        name = f"{model['name']}, {model['steps']} step{'s' * (model['steps'] > 1)}"
        listed = [*map(shown, starts[:SHOWN]), *["..."] * (len(starts) > SHOWN)]
        rounds = f"{shown(made)} ({step + 1})"
        cells.append([name, ", ".join(listed), own_steps, shown(wanted), rounds, *costs])
    return table(COLUMNS, cells, 2)


def shown(ratio: float) -> str:
    """Format a ratio with three digits; that of pure noise is infinite."""
    if ratio == math.inf:
        return "∞"
    return f"{ratio:,.0f}" if ratio > 999 else f"{ratio:.3g}"


def with_table(page: str, new: str) -> str:
    """The page with this table replaced, which has the column `BEFORE`."""
    old = rf"^\|.*{BEFORE}.*\n(?:\|.*\n)+"
    return re.sub(old, lambda _: new + "\n", page, flags=re.MULTILINE)


def write_page() -> None:
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), rows()), "utf-8")


if __name__ == "__main__":
    click.command(help=__doc__)(write_page)()
