"""What is fuzzed of each command: its options, and the files that it reads or goes on with."""

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from scripts.stress.hostile import (
    PATHS,
    PROMPTS,
    copy_linked,
    damage,
    damaged,
    spoil,
    value_for,
)
from vendi_guidance.commands import compare, evaluate, generate, tune
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.features.probe import Probe
from vendi_guidance.storage.imagefolder import METADATA
from vendi_guidance.tuning.study import JOURNAL

WRITTEN = ("--output", "--window-out", "--cache")
"""Options that name what a command may write."""

Case = tuple[list[str], Callable[[], None] | None]
"""A command line, and what is done after it, if anything."""


@dataclass(frozen=True)
class Fuzzed:
    """A command, given small work.

    Attributes:
        usual: a command line that works, without its folder.
        cases: make command lines, and damage files for them.
        begun: the folder that it makes beforehand, to go on with.
        model: that it is given.
    """

    command: click.Command
    usual: tuple[str, ...]
    cases: tuple[Callable[["Fuzzed", random.Random], Case], ...]
    begun: str
    model: Path

    def words(self, *more: str, output: str = "new") -> list[str]:
        return [*self.usual, "--output", output, *more]


def command_line(fuzzed: Fuzzed, rng: random.Random) -> Case:
    """Any options, in any order, with any values."""
    options = [option for option in fuzzed.command.params if isinstance(option, click.Option)]
    words = []
    for option in rng.sample(options, min(rng.randint(0, 6), rng.randint(1, 6))):
        words.append(option.opts[0] if rng.random() < 0.97 else option.opts[0][:-1])
        if not option.is_flag and rng.random() < 0.98:
            words.append(value_for(option, rng, WRITTEN))
    if fuzzed.command is generate.main and rng.random() < 0.8:
        words.insert(0, rng.choice(("--overwrite", "--resume")))
    usual = fuzzed.words(output=rng.choice(("new", fuzzed.begun)))
    first = rng.choice(PATHS if fuzzed.command is evaluate.main else PROMPTS)
    if rng.random() < 0.8:
        first = usual[0]
    return [first, *usual[1:], *words], None


def prompt_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    path = Path(rng.choice(("prompts.txt", "prompts.jsonl", "prompts.csv")))
    damage(path, rng)
    return [str(path), *fuzzed.words()[1:]], None


def run_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path("run"), rng)
    return fuzzed.words("--resume", output="run"), read_back


def begun_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path(fuzzed.begun), rng)
    return fuzzed.words(output=fuzzed.begun), None


def journal_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    damage(Path(fuzzed.begun) / JOURNAL, rng)
    return fuzzed.words(output=fuzzed.begun), None


def window_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    path = Path("window.safetensors")
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    part = rng.choice(("file", "header", "own header"))
    if part == "own header":
        entry = json.loads(header)
        own = entry["__metadata__"]["header"].encode()
        entry["__metadata__"]["header"] = damaged(own, rng).decode(errors="ignore")
        header = json.dumps(entry).encode()
    elif part == "header":
        header = damaged(header, rng)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    if part == "file":
        damage(path, rng)
    return fuzzed.words("--window-in", str(path)), None


def settings_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    damage(Path("settings.json"), rng)
    return fuzzed.words("--settings", "settings.json"), None


def model_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    copy_linked(fuzzed.model, Path("copied"))
    spoiled = spoil_one(Path("copied"), rng)
    if spoiled.suffix == ".json" and spoiled.is_file():  # large numbers ask for large networks
        spoiled.write_bytes(re.sub(rb"\d{6,}", b"7", spoiled.read_bytes()))
    has_embedder, has_model = "--prompt-embedder" in fuzzed.usual, "--model" in fuzzed.usual
    if has_embedder and (not has_model or rng.random() < 0.2):
        return fuzzed.words("--prompt-embedder", "sdxl:copied"), None
    return fuzzed.words("--model", "copied"), None


def evaluated_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path("run"), rng)
    more = rng.choice(([], ["run"], ["other"], ["--on-bad-image", "fail"], ["--workers", "1"]))
    return fuzzed.words(*more), None


def attributes_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    damage(Path("attributes.json"), rng)
    judge = rng.choice((["--attribute-judge", "labels"], [])) if "run" in fuzzed.usual else []
    return fuzzed.words("--attributes", "attributes.json", *judge), None


def calibration_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path("labelled"), rng)
    return fuzzed.words("--attributes", "tone.json", "--attribute-calibration", "labelled"), None


def benchmark_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    name, path = rng.choice((("coco1000", "coco.json"), ("dimcim", "dimcim.json")))
    damage(Path(path), rng)
    words = fuzzed.words("--protocol", name, "--protocol-prompts", "1")
    if fuzzed.command is evaluate.main:
        return [*words, "--attributes", path], None
    place = words.index("--images-per-prompt")
    return [path, *words[1:place], *words[place + 2 :]], None


def features_file(fuzzed: Fuzzed, rng: random.Random) -> Case:
    path = rng.choice(("features.npy", "features.npz", "features.safetensors"))
    damage(Path(path), rng)
    return fuzzed.words("--reference", path), None


def faithfulness_column(fuzzed: Fuzzed, rng: random.Random) -> Case:
    damage(Path("run/metadata.jsonl"), rng)
    return fuzzed.words("--faithfulness", rng.choice(("seed", "diversity_scale"))), None


def probe_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path("probe"), rng)
    asked = ["--probe", "probe"] if "run" in fuzzed.usual else ["--faithfulness", "probe:probe"]
    return fuzzed.words(*rng.choice((asked, ["--image-embedder", "probe:probe"]))), None


def cache_folder(fuzzed: Fuzzed, rng: random.Random) -> Case:
    spoil_one(Path("cache"), rng)
    return fuzzed.words("--cache", "cache"), None


def spoil_one(folder: Path, rng: random.Random) -> Path:
    """Spoil a file in a folder, one at its top as likely as one below; returns its path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    top = [path for path in files if path.parent == folder]
    path = rng.choice(top if top and rng.random() < 0.5 else files)
    spoil(path, rng)
    return path


def read_back() -> None:
    """Read the run folder as `evaluate` does."""
    with suppress(ValueError, OSError):
        list(as_batch(Path("run")).images)


def fuzzed_commands(model: Path) -> dict[str, Fuzzed]:
    """The commands by name, with this model."""
    drawn = ("--model", str(model), "--device", "cpu", "--batch-size", "2", "--steps", "1")
    judged = ("--image-embedder", "pixels:4", "--prompt-embedder", f"sdxl:{model}")
    searched = (*drawn, "--images-per-prompt", "2", *judged, "--faithfulness", "probe:probe")
    methods = ("--method", "ours=0.5", "--method", "seed-variance=1")
    many = (prompt_file, begun_folder, begun_folder, model_folder, probe_folder)
    return {
        "generate": Fuzzed(
            generate.main,
            ("prompts.txt", *drawn),
            (command_line, prompt_file, run_folder, window_file, settings_file, model_folder),
            "run",
            model,
        ),
        "evaluate": Fuzzed(
            evaluate.main,
            ("run", *judged, "--probe", "probe", "--text-encoder", str(model)),
            (
                *(command_line, command_line, evaluated_folder, evaluated_folder),
                *(attributes_file, features_file, faithfulness_column, probe_folder),
                *(cache_folder, model_folder, calibration_folder, benchmark_file),
            ),
            "report",
            model,
        ),
        "tune": Fuzzed(
            tune.main,
            ("prompts.txt", *searched, "--trials", "2", "--pictures", "30", "--keep", "0.01"),
            (command_line, command_line, journal_file, *many),
            "tuned",
            model,
        ),
        "compare": Fuzzed(
            compare.main,
            ("prompts.txt", *searched, *methods, "--probe", "probe"),
            (command_line, command_line, attributes_file, benchmark_file, *many),
            "compared",
            model,
        ),
    }


def write_inputs() -> None:
    """Valid files of every kind, but for those that commands write."""
    Path("prompts.txt").write_text("a cat\n\na dog\na café\n")
    lines = [json.dumps({"prompt": text, "id": 3}) for text in ("a cat", "a\ndog", "🐈")]
    Path("prompts.jsonl").write_text("\n".join(lines))
    Path("prompts.csv").write_text('id,prompt\n1,cat\n2,"a ""big"" dog,\nasleep"\n')
    settings = {"strength": 0.5, "rounds": 2, "level": 0.3}
    about = {"format": "vendi-guidance settings", "version": 1}
    Path("settings.json").write_text(json.dumps({**about, "settings": settings}))
    of_all = {"tone": ["light", "dark"], "diversity_objective": "conditional-rke, vendi"}
    split = {"attributes": of_all, "prompts": {"a cat": {"seed": ["0", "1"]}}}
    Path("attributes.json").write_text(json.dumps(split))
    Path("tone.json").write_text(json.dumps({"tone": ["light", "dark"]}))
    Path("labelled").mkdir()
    with Path("labelled", METADATA).open("w") as labels:
        for number, tone in enumerate(("light", "dark", "dark", "light")):
            Image.new("RGB", (16, 16), (60 * number, 0, 90)).save(f"labelled/{number}.png")
            row = {"file_name": f"{number}.png", "prompt": "a cat", "tone": tone}
            labels.write(json.dumps(row) + "\n")
    captions = [{"id": i, "image_id": i // 2, "caption": f"a cat {i}"} for i in range(6)]
    Path("coco.json").write_text(json.dumps({"annotations": captions}))
    dense = [
        {"attribute_type": "tone", "attribute": tone, "dense_prompt": f"a {tone} cat"}
        for tone in ("light", "dark")
    ]
    groups = [{"coarse_prompt": "a cat", "dense_prompts": dense}]
    asked = [{"concept": "cat", "coarse_dense_prompts": groups}]
    Path("dimcim.json").write_text(json.dumps(asked))
    features = np.random.default_rng(0).normal(size=(8, 48)).astype(np.float32)
    np.save("features.npy", features)
    np.savez("features.npz", features=features)
    save_file({"features": features}, "features.safetensors")
    Probe(["a cat", "a dog"], [("tone", ["light", "dark"])], "{concept}, {tone}").save_pretrained(
        "probe"
    )
