"""Try settings on the tuning prompts of the demo models, beside no guidance.

\b
  python -m scripts.comparison.choose --set diversity=0.5 --seed 0 --seed 1000
  python -m scripts.comparison.choose --constant vendi_guidance.guidance.ways.own_steps:ABOVE=2
  python -m scripts.comparison.choose --method particle-guidance --model demo-photos

Prints a table for each model, and which limits a setting exceeds, and adds a line for each to
choices.jsonl beside this script. The same command resumes a stopped trial; changed code of guidance
begins guided runs anew. FD is comparable only with all 12 open prompts.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import click

from scripts.benchmarks.measuring import device_option, several
from scripts.comparison.__main__ import COUNT, compare, options_of, save_spread
from scripts.comparison.methods import METHODS, entries_of
from scripts.comparison.models import LOG, MODELS, NAMED, OPEN
from scripts.comparison.pages import table_of
from scripts.comparison.scores import TASTE
from vendi_guidance.commands.cli import Command
from vendi_guidance.guidance.settings import Rounds, adjusted
from vendi_guidance.runs.signals import Stop
from vendi_guidance.scores.subsampling import Estimate
from vendi_guidance.tuning.dial import Sweep

ROOT = Path(__file__).parents[2]
CHOSEN_ON = [name for name in MODELS if name != "demo-faces-turbo-lora"]
CODE = ("vendi_guidance/guidance", "vendi_guidance/adapter", "vendi_guidance/kernels", "pipelines")
TUNING_FEATURES = "tuning_features.safetensors"
"""In a probe's folder: its features of real images of the open tuning prompts."""
LIMITS = {"named kept": 0.02, "fidelity": 0.02, "FD": 0.0, TASTE: 0.1}
LIMITS_AT_ONE = {"named kept": 0.05, "fidelity": 0.04, "FD": 0.03, TASTE: 0.2}
"""The most that guidance may lose, and the share by which FD may rise; and at diversity 1."""


def pairs(context: Any, parameter: Any, given: Sequence[str]) -> dict[str, Any]:
    """Options NAME=VALUE, where a value that is no JSON is a text."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@click.command(cls=Command, help=__doc__)
@click.option("--set", "settings", multiple=True, callback=pairs, help="Setting, as NAME=VALUE.")
@click.option("--constant", "constants", multiple=True, callback=pairs, help="MODULE:NAME=VALUE.")
@click.option("--method", type=click.Choice(list(METHODS)), default="default")
@several("--model", "models", click.Choice(list(MODELS)), CHOSEN_ON, "Model to try them on.")
@several("--seed", "seeds", click.IntRange(0), (0,), "Seed of a run's first image.")
@click.option("--open", OPEN, type=COUNT, default=12, help="Number of open prompts.")
@click.option("--named", NAMED, type=COUNT, default=15, help="Number of named prompts.")
@click.option("--guidance-scale", "scale", type=click.FLOAT, help="CFG scale, for all models.")
@device_option
@click.option("--output", type=click.Path(path_type=Path), default="out/choose")
@click.option("--log", type=click.Path(path_type=Path), default=LOG)
def main(
    settings: dict[str, Any],
    constants: dict[str, Any],
    method: str,
    models: Sequence[str],
    seeds: Sequence[int],
    scale: float | None,
    device: Any,
    output: Path,
    log: Path,
    **counts: int,
) -> None:
    try:
        adjusted(Rounds(), settings)
        for name, value in constants.items():
            set_constant(name, value)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    about = (*(f"{name}={value}" for name, value in constants.items()), code())
    how = {"constants": constants, "commit": commit(), "code": code(), "seeds": seeds, **counts}
    how |= {"guidance_scale": scale} if scale else {}
    value = {"value": settings[own]} if (own := METHODS[method].setting) in settings else {}
    for model in models:
        demo, folder = MODELS[model], output / model / f"{counts[OPEN]}-{counts[NAMED]}"
        prompts = save_spread(folder, {OPEN: demo.tuning, NAMED: demo.named_tuning}, counts)
        further = {"settings": tuple(settings.items()), "about": about, **value}
        plain, *tried = entries_of(model, [method])
        entries = [*product(seeds, [plain, *(entry._replace(**further) for entry in tried)])]
        with Stop() as stop:
            runs = Sweep(options_of(model, str(device), folder), stop)
            called = demo.steps, scale or demo.guidance_scale
            result = compare(model, runs, prompts, entries, *called, TUNING_FEATURES)
        click.echo(table_of([result]))
        unguided, *rows = result.rows
        for row in rows:
            broken = exceeded(row.scores, unguided.scores, row.entry.diversity)
            click.echo(f"{row.entry.name}: {'; '.join(broken) or 'within all limits'}")
            line = {"model": model, "method": method, "value": row.entry.value, **how}
            line["settings"] = row.entry.diversity
            for kind, scores in {"scores": row.scores, "unguided": unguided.scores}.items():
                line[kind] = {title: round(score.value, 4) for title, score in scores.items()}
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line | {'exceeded': broken})}\n")


def exceeded(
    scores: Mapping[str, Estimate], unguided: Mapping[str, Estimate], settings: Mapping[str, Any]
) -> list[str]:
    """In words, which limits guidance with these settings exceeds beside the unguided scores."""
    found, limits = [], LIMITS_AT_ONE if settings.get("diversity") == 1 else LIMITS
    for title in limits.keys() & scores.keys() & unguided.keys():
        plain, change = unguided[title].value, scores[title].value - unguided[title].value
        worse = change / plain if title == "FD" else -change
        if worse > limits[title] + 1e-9:  # a loss of exactly the limit is within it
            found.append(f"{title} worse by {worse:.3f}, limit {limits[title]:g}")
    return sorted(found)


def set_constant(name: str, value: Any) -> None:
    """Set MODULE:NAME in this process, there and where the package imports it by name. Default
    values of arguments and fields, and what is computed from a constant at import, stay."""
    module, _, constant = name.partition(":")
    old = getattr(import_module(module), constant)
    for found in [import_module(module), *sys.modules.values()]:
        if found.__name__.startswith("vendi_guidance") and vars(found).get(constant) is old:
            setattr(found, constant, value)


def code() -> str:
    """A hash of the code that determines guided images."""
    files = sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py"))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main(prog_name="python -m scripts.comparison.choose")
