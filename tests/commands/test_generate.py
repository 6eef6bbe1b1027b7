"""`vendi-guidance generate` as a user calls it, on a tiny random SDXL."""

import json
import os
import re
import runpy
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from diffusers import StableDiffusionXLPipeline
from safetensors.torch import load_file, save_file

from tests.conftest import SCRIPTS
from tests.helpers.commands import assert_refused, contents, invoke
from tests.helpers.processes import fork, needs_fork, wait
from tests.helpers.runs import made, read_run
from vendi_guidance import SlidingWindow
from vendi_guidance.commands import generate
from vendi_guidance.guidance.settings import PRESETS, Rounds, dial
from vendi_guidance.runs.manifest import MANIFEST
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS

STEPS = 4

GUIDED = ("--diversity-sigma-latent", 2)
"""So wide a kernel that images of a random model seem alike, and guidance moves them."""


@pytest.fixture
def make(tiny_sdxl_folder, tmp_path):
    """Run the command: `make(prompts, *options)`, with the tiny model, into tmp_path / "out"."""

    def run(prompts: str, *options: object, output: Path = tmp_path / "out") -> Result:
        words = [prompts, "--model", tiny_sdxl_folder, "--output", output, "--steps", STEPS]
        words += ["--device", "cpu", *options]
        return invoke(generate.main, *words)

    return run


def test_generate_writes_an_imagefolder_in_the_order_of_the_prompts(make, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a \\"cat\\"\\nasleep"}\n{"prompt": "собака"}\n')
    result = make(prompts, "--images-per-prompt", 3, "--batch-size", 4, "--seed", 7)
    run = made(result, tmp_path / "out")
    assert run.prompts == ['a "cat"\nasleep'] * 3 + ["собака"] * 3
    assert [row["seed"] for row in run.rows] == [7, 8, 9, 10, 11, 12]
    assert [row["file_name"] for row in run.rows] == [f"{i:06d}.png" for i in range(6)]
    first = run.rows[0]
    assert first["diversity_scale"] == Rounds().scale
    assert first["diversity_window"] == 300
    assert first["steps"] == STEPS
    assert first["seconds"] > 0
    assert f"6 images in {tmp_path / 'out'}, " in result.output
    assert "skipped" not in result.output


@pytest.mark.parametrize("option", ["--diversity", "--diversity-scale"])
def test_without_diversity_it_is_the_stock_pipeline_bit_by_bit(
    make, tmp_path, tiny_sdxl_folder, option
):
    same = ("--images-per-prompt", 3, "--batch-size", 3, "--dtype", "float32")
    result = make("cat", option, 0, *same)
    run = made(result, tmp_path / "out")
    stock = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder, dtype=torch.float32)
    stock.set_progress_bar_config(disable=True)
    expected = stock(
        ["cat"] * 3,
        num_inference_steps=STEPS,
        guidance_scale=5.0,
        generator=[torch.Generator("cpu").manual_seed(seed) for seed in range(3)],
    ).images
    for image, other in zip(run.images, expected, strict=True):
        assert np.array_equal(np.asarray(image), np.asarray(other))


PUBLISHED = asdict(PRESETS["published"]) | {"beta": ...}  # it belongs to exemplars
NONE = {"sigma_latent": None, "sigma_prompt": None, "truncation": None}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--diversity 1 --diversity-rounds 2", dial(1) | {"rounds": 2}),
        (
            "--diversity-preset published --diversity-every 3",
            PUBLISHED | {"every": 3, "rounds": 0, "level": ..., "cfg": ...},
        ),
        (
            "--diversity-preset published --diversity-sigma-latent automatic "
            "--diversity-sigma-prompt automatic --diversity-truncation all",
            PUBLISHED | NONE,
        ),
    ],
    ids=["dial", "preset", "words for None"],
)
def test_settings_are_the_dials_or_a_presets_but_for_those_given(make, tmp_path, options, expected):
    [row] = made(make("cat", *options.split()), tmp_path / "out").rows
    assert {name: row.get(f"diversity_{name}", ...) for name in expected} == expected


def test_the_words_for_none_belong_to_their_settings(make):
    for name, word in (("sigma-latent", "all"), ("scale", "none"), ("truncation", "automatic")):
        assert_refused(make("cat", f"--diversity-{name}", word), f"--diversity-{name}", word)
    text = CliRunner().invoke(generate.main, ["--help-all"]).output
    assert "--diversity-sigma-latent [NUMBER|automatic]" in text
    assert "--diversity-truncation [NUMBER|all]" in text


def test_with_the_memory_of_a_call_batches_do_not_know_of_earlier_ones(make, tmp_path):
    options = ("--images-per-prompt", 4, "--batch-size", 2, "--diversity-memory", "call")
    whole = made(make("cat", *options), tmp_path / "out")
    later = made(
        make("cat", *options, "--images-per-prompt", 2, "--seed", 2, output=tmp_path / "later"),
        tmp_path / "later",
    )
    assert np.array_equal(whole.pixels[2:], later.pixels)
    options = (*options[:-1], "session")
    known = made(make("cat", *options, output=tmp_path / "known"), tmp_path / "known")
    assert np.array_equal(whole.pixels[:2], known.pixels[:2])
    assert not np.array_equal(whole.pixels[2:], known.pixels[2:])


def test_unguided_images_do_not_depend_on_the_batch_size(make, tmp_path):
    # Not bit by bit: matrix products of other shapes round differently. A grey level is all.
    options = ("--diversity-scale", 0, "--images-per-prompt", 5)
    large, small = tmp_path / "large", tmp_path / "small"
    at_once = made(make("cat", *options, "--batch-size", 5, output=large), large)
    in_parts = made(make("cat", *options, "--batch-size", 2, output=small), small)
    assert np.abs(at_once.pixels - in_parts.pixels).max() <= 1


def test_a_saved_window_makes_two_runs_one(make, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("cat\ncat\ndog\ndog\n")
    options = ("--batch-size", 2, "--diversity-objective", "rke", *GUIDED)
    whole = made(make(prompts, *options), tmp_path / "out")
    prompts.write_text("cat\ncat\n")
    window = tmp_path / "window.safetensors"
    made(make(prompts, *options, "--window-out", window, "--overwrite"), tmp_path / "out")
    assert len(SlidingWindow.load(window)) == 2
    prompts.write_text("dog\ndog\n")
    options += ("--seed", 2)
    alone = made(make(prompts, *options, output=tmp_path / "alone"), tmp_path / "alone")
    knowing = made(
        make(prompts, *options, "--window-in", window, output=tmp_path / "knowing"),
        tmp_path / "knowing",
    )
    assert np.abs(knowing.pixels - whole.pixels[2:]).max() <= 1
    assert not np.array_equal(knowing.pixels, alone.pixels)
    assert knowing.rows[0]["diversity_window"] == 300


def test_an_unguided_run_can_fill_a_window(make, tmp_path):
    window = tmp_path / "window.safetensors"
    options = ("--diversity-scale", 0, "--diversity-window", 2, "--window-out", window)
    made(make("cat", "--images-per-prompt", 3, *options), tmp_path / "out")
    loaded = SlidingWindow.load(window)
    assert (len(loaded), loaded.size) == (2, 2)


def test_overwrite_replaces_a_run_and_nothing_else(make, tmp_path):
    folder = tmp_path / "out"
    made(make("cat", "--images-per-prompt", 3), folder)
    (folder / "notes.md").write_text("mine")
    before = contents(folder)
    assert_refused(make("dog"), str(folder), "--overwrite")
    assert contents(folder) == before
    assert made(make("dog", "--overwrite"), folder).prompts == ["dog"]
    checkpoint = ".checkpoints/000000000001-000000000001.safetensors"
    own = {METADATA, TIMINGS, MANIFEST, checkpoint, "000000.png"}
    assert set(contents(folder)) == {*own, "notes.md"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--diversity-scale -0.5", ["--diversity-scale", "-0.5"]),
        ("--diversity-scale nan", ["scale", "nan"]),
        ("--diversity-window 0", ["--diversity-window", "0"]),
        ("--diversity-objective vscore", ["'vscore'", "conditional-rke"]),
        ("--diversity-memory long", ["'long'", "session"]),
        ("--diversity -0.1", ["--diversity", "-0.1"]),
        ("--diversity nan", ["--diversity", "nan"]),
        ("--diversity 0.5 --diversity-preset published", ["published", "strength", "0.5"]),
        ("--diversity-preset best", ["'best'", "published"]),
        ("--steps 0", ["--steps", "0"]),
        ("--guidance-scale nan", ["guidance-scale", "nan"]),
        ("--device toaster", ["'toaster'"]),
        ("--dtype int3", ["'int3'"]),
        ("--offload model", ["--offload model", "--device is cpu"]),
        ("--offload all", ["--offload", "'all'", "sequential"]),
        ("--height 7", ["--height", "7"]),
        ("--height 20", ["height", "divisible by 8", "20"]),
        ("--window-in no.safetensors", ["no.safetensors"]),
        ("--window-out no/such/w.safetensors", ["no/such/w.safetensors"]),
        ("--model no/such/model", ["no/such/model", "model_index.json"]),
        ("--variant fp16", ["cannot be loaded", "fp16"]),
    ],
)
def test_a_wrong_option_is_named_and_leaves_earlier_output_untouched(
    make, tmp_path, options, words
):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")  # a run, which --overwrite may replace
    (folder / METADATA).write_text('{"file_name": "000000.png", "prompt": "cat"}\n')
    (folder / "000000.png").write_bytes(b"earlier")
    before = contents(folder)
    assert_refused(make("cat", "--overwrite", *options.split()), *words)
    assert contents(folder) == before


def test_a_wrong_prompt_file_output_or_model_is_named(make, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert_refused(make(empty), "empty.txt", "no prompts")
    assert_refused(make(tmp_path / "none.csv"), "none.csv")
    assert_refused(make("cat", output=empty), "empty.txt", "is a file")
    (tmp_path / "model_index.json").write_text("{")
    assert_refused(make("cat", "--model", tmp_path), "model_index.json")
    assert not (tmp_path / "out").exists()


def test_a_window_that_does_not_fit_the_model_leaves_earlier_output_untouched(make, tmp_path):
    window = SlidingWindow(3)
    window.append(torch.randn(2, 4, 8, 8), torch.randn(2, 7))
    window.save(tmp_path / "other.safetensors")
    made(make("cat"), tmp_path / "out")
    before = contents(tmp_path / "out")
    options = ("--overwrite", "--diversity-every", 1, "--window-in", tmp_path / "other.safetensors")
    assert_refused(make("cat", *options), "width 7")
    assert contents(tmp_path / "out") == before


def run_script(folder: Path, *words: object) -> tuple[int, str]:
    """Exit status and output of generate.py started in a folder."""

    def act() -> None:
        os.chdir(folder)
        sys.argv = [str(SCRIPTS / "generate.py"), *map(str, words)]
        runpy.run_path(sys.argv[0], run_name="__main__")

    log = folder.with_suffix(".log")
    return wait(fork(act, log)), log.read_text()


@needs_fork
def test_generate_runs_as_a_process_from_any_folder(tiny_sdxl_folder, tmp_path):
    words = ("cat", "--model", tiny_sdxl_folder, "--output", "out", "--steps", STEPS)
    status, said = run_script(tmp_path, *words, "--device", "cpu")
    assert status == 0, said
    *bars, last = said.split("\n")[:-1]
    assert last.startswith("1 image in out, ")
    bars = [bar for line in bars for bar in line.split("\r") if "%|" in bar]
    assert "1/1" in bars[-1]
    assert all("image" in bar for bar in bars)
    assert read_run(tmp_path / "out").prompts == ["cat"]


# The undistilled network


@pytest.fixture
def base(tiny_sdxl_folder, tmp_path):
    """A model of other weights."""
    folder = tmp_path / "base"
    shutil.copytree(tiny_sdxl_folder, folder)
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights = {name: 1.5 * weight for name, weight in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    return folder


def test_a_run_from_before_there_was_a_budget_goes_on_with_its_rounds(make, tmp_path):
    older = ("--diversity-rounds", 8, "--diversity-candidates", 2, *GUIDED)
    usual = ("--images-per-prompt", 2, "--batch-size", 2)
    first = made(make("cat", *usual, *older, "--seed", 3), tmp_path / "out").rows[0]
    assert first["diversity_rounds"] == 8 and "diversity_budget" not in first
    for given in (older, GUIDED):
        again = make("cat", *usual, *given, "--seed", 3, "--resume")
        assert again.exit_code == 0 and "nothing was left to do" in again.output
    again = make("cat", *usual, *GUIDED, "--diversity-budget", 2, "--seed", 3, "--resume")
    assert again.exit_code == 2 and "--diversity-budget" in again.output


def test_another_network_makes_the_rounds_and_the_run_says_which(make, base, tmp_path):
    options = ("--images-per-prompt", 4, *GUIDED)
    own = made(make("a cat", *options), tmp_path / "out").pixels
    result = make("a cat", *options, "--undistilled", base, output=tmp_path / "other")
    other = made(result, tmp_path / "other")
    assert (other.pixels != own).any()
    assert {row["undistilled"] for row in other.rows} == {str(base)}
    assert re.search(rf"the rounds' network, {base}: [0-9.e-]+ GB beside the model", result.output)
    unet = make("a cat", *options, "--undistilled", base / "unet", output=tmp_path / "unet")
    assert (made(unet, tmp_path / "unet").pixels == other.pixels).all()
    again = make("a cat", *options, "--resume", output=tmp_path / "other")
    assert again.exit_code == 2 and "--undistilled is none, was" in again.output
    again = make("a cat", *options, "--resume", "--undistilled", base, output=tmp_path / "other")
    assert again.exit_code == 0 and "nothing was left to do" in again.output


def test_a_network_that_predicts_something_else_is_refused(make, base):
    file = base / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prediction_type": "v_prediction"}))
    result = make("a cat", "--undistilled", base)
    assert result.exit_code == 2 and "predicts v_prediction, and the model epsilon" in result.output


def test_undistilled_does_nothing_at_0(make, tmp_path):
    made(make("a cat", "--undistilled", "adapters", "--diversity", 0), tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adapters", "needs a network with a LoRA"),
        ("nothing-here", "nothing-here is neither a folder nor in the cache"),
        ("{}", "there is no unet/diffusion_pytorch_model"),
        ("{}/net", "is a SD3Transformer2DModel, and the model has a UNet2DConditionModel"),
    ],
)
def test_what_is_no_undistilled_network_is_refused(make, tmp_path, name, message):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "config.json").write_text('{"_class_name": "SD3Transformer2DModel"}')
    result = make("a cat", "--undistilled", name.format(tmp_path))
    assert result.exit_code == 2 and message in " ".join(result.output.split())
