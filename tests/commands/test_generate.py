"""`vendi-guidance generate` as a user calls it, on a tiny random SDXL."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from diffusers import StableDiffusionXLPipeline
from safetensors.torch import load_file, save_file

from tests.helpers.commands import assert_refused, contents, invoke, said_by
from tests.helpers.runs import made
from vendi_guidance import SlidingWindow
from vendi_guidance.commands import generate
from vendi_guidance.guidance.settings import PRESETS, Rounds, with_prefix
from vendi_guidance.runs.plan import MANIFEST
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS, read_timings

STEPS = 4
NOTHING_LEFT = "nothing was left to do"

GUIDED = ("--diversity-sigma-latent", 2)
"""So wide a kernel that images of a random model seem alike, and guidance moves them."""


@pytest.fixture
def make(tiny_sdxl_folder, tmp_path):
    """Run the command: `make(prompts, *options)`, with the tiny model, into tmp_path / "out"."""

    def run(prompts: object, *options: object, output: str = "out") -> Result:
        words = [prompts, "--model", tiny_sdxl_folder, "--output", tmp_path / output]
        return invoke(generate.main, *words, "--steps", STEPS, "--device", "cpu", *options)

    return run


@pytest.fixture
def run_of(make, tmp_path):
    """The run of a command that succeeded: `run_of(prompts, *options)`."""
    return lambda *words, output="out": made(make(*words, output=output), tmp_path / output)


def test_generate_writes_an_imagefolder_in_the_order_of_the_prompts(make, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a \\"cat\\"\\nasleep"}\n{"prompt": "собака"}\n')
    result = make(prompts, "--images-per-prompt", 3, "--batch-size", 4, "--seed", 7)
    run = made(result, tmp_path / "out")
    assert [row["prompt"] for row in run.rows] == ['a "cat"\nasleep'] * 3 + ["собака"] * 3
    assert [row["seed"] for row in run.rows] == [7, 8, 9, 10, 11, 12]
    assert [row["file_name"] for row in run.rows] == [f"{i:06d}.png" for i in range(6)]
    first = run.rows[0]
    assert first["diversity"] == Rounds().diversity
    assert first["diversity_window"] == 300
    assert first["steps"] == STEPS
    assert first["seconds"] > 0
    assert f"6 images in {tmp_path / 'out'}, " in result.output
    assert "skipped" not in result.output


def test_without_diversity_it_is_the_stock_pipeline_bit_by_bit(run_of, tiny_sdxl_folder, tmp_path):
    same = ("--images-per-prompt", 3, "--batch-size", 3, "--dtype", "float32")
    run = run_of("cat", "--diversity", 0, "--undistilled", "adapters", *same)
    stock = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder, dtype=torch.float32)
    expected = stock(
        ["cat"] * 3,
        num_inference_steps=STEPS,
        guidance_scale=5.0,
        generator=[torch.Generator("cpu").manual_seed(seed) for seed in range(3)],
    ).images
    for image, other in zip(run.images, expected, strict=True):
        assert np.array_equal(np.asarray(image), np.asarray(other))
    evaluations = read_timings(tmp_path / "out", "evaluations").values()
    assert [*evaluations] == [2 * STEPS] * 3  # with and without the prompt


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--diversity 1 --diversity-rounds 2", {"diversity": 1, "rounds": 2}),
        ("--diversity-rounds automatic", {"diversity": 0.5, "rounds": None}),
        (
            "--diversity-preset published --diversity-every 3",
            asdict(PRESETS["published"]) | {"every": 3, "beta": ..., "rounds": ...},
        ),
    ],
    ids=["dial", "described None", "preset"],
)
def test_settings_are_the_dials_or_a_presets_but_for_those_given(run_of, options, expected):
    [row] = run_of("cat", *options.split()).rows
    assert {name: row.get(with_prefix(name), ...) for name in expected} == expected


def test_the_words_for_none_belong_to_their_settings(make):
    refused = make("cat", "--diversity-truncation", "automatic")
    assert_refused(refused, "--diversity-truncation", "automatic")
    text = CliRunner().invoke(generate.main, ["--help-all"]).output
    for name in ("sigma-latent", "rounds"):
        assert f"--diversity-{name} [NUMBER|automatic]" in text
    assert "--diversity-truncation [NUMBER|all]" in text


def test_a_saved_window_makes_two_runs_one(run_of, tmp_path):
    prompts, window = tmp_path / "prompts.txt", tmp_path / "window.safetensors"
    options = ("--batch-size", 2, "--diversity-objective", "rke", *GUIDED)
    prompts.write_text("cat\ncat\ndog\ndog\n")
    whole = run_of(prompts, *options).pixels
    prompts.write_text("cat\ncat\n")
    run_of(prompts, *options, "--window-out", window, "--overwrite")
    assert len(SlidingWindow.load(window)) == 2
    prompts.write_text("dog\ndog\n")
    alone = run_of(prompts, *options, "--seed", 2, output="alone")
    knowing = run_of(prompts, *options, "--seed", 2, "--window-in", window, output="knowing")
    assert np.abs(knowing.pixels - whole[2:]).max() <= 2  # rounding
    assert not np.array_equal(knowing.pixels, alone.pixels)
    assert knowing.rows[0]["diversity_window"] == 300


def test_a_protocol_decides_how_many_images_of_each_prompt_there_are(make, tmp_path):
    result = make("cat", "--protocol", "group-vendi")
    assert len(made(result, tmp_path / "out").rows) == 4
    assert f"evaluate {tmp_path / 'out'} --protocol group-vendi" in result.output


def test_overwrite_replaces_a_run_and_nothing_else(make, run_of, tmp_path):
    folder = tmp_path / "out"
    run_of("cat", "--images-per-prompt", 3)
    mine = {"notes.md", "comparison.png", "2024.png"}
    for name in mine:
        (folder / name).write_text("mine")
    before = contents(folder)
    assert_refused(make("dog"), str(folder), "--overwrite")
    assert contents(folder) == before
    assert [row["prompt"] for row in run_of("dog", "--overwrite").rows] == ["dog"]
    checkpoint = ".checkpoints/000000000001.safetensors"
    own = {METADATA, TIMINGS, MANIFEST, checkpoint, "000000.png"}
    assert set(contents(folder)) == {*own, *mine}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--diversity-scale nan", ["scale", "nan"]),
        ("--diversity-objective vscore", ["'vscore'", "conditional-rke"]),
        (
            "--diversity 0.5 --diversity-preset published",
            ["--diversity is", 'leave out --diversity-preset="published"'],
        ),
        (
            "--diversity-every 5",
            ["--diversity-every is a setting of Published", 'add --diversity-preset="published"'],
        ),
        ("--device toaster", ["'toaster'"]),
        ("--resume", ["--overwrite", "--resume"]),
        ("--protocol group-vendi --images-per-prompt 6", ["groups of 4", "6 is no multiple"]),
        ("--offload model", ["--offload model", "--device is cpu"]),
        ("--height 20", ["height", "divisible by 8", "20"]),
        ("--window-in no.safetensors", ["no.safetensors"]),
        ("--window-out no/such/w.safetensors", ["no/such/w.safetensors"]),
        ("--window-out .", ["'--window-out': File '.' is a directory"]),
        ("--model no/such/model", ["no/such/model", "model_index.json"]),
        ("--variant fp16", ["cannot be loaded", "fp16"]),
        ("--diversity-rounds 1 --window-in {other}", ["width 7"]),
    ],
)
def test_a_wrong_option_is_named_and_changes_no_earlier_output(make, tmp_path, options, words):
    folder, other = tmp_path / "out", tmp_path / "other.safetensors"
    window = SlidingWindow(3)
    window.append(torch.randn(2, 4, 8, 8), torch.randn(2, 7))
    window.save(other)
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")  # a run, which --overwrite may replace
    (folder / METADATA).write_text('{"file_name": "000000.png", "prompt": "cat"}\n')
    (folder / "000000.png").write_bytes(b"earlier")
    before = contents(folder)
    given = options.format(other=other).split()
    assert_refused(make("cat", "--overwrite", *given), *words)
    assert contents(folder) == before


def test_a_wrong_prompt_file_output_or_model_is_named(make, tmp_path):
    (tmp_path / "empty.txt").touch()
    assert_refused(make(tmp_path / "empty.txt"), "empty.txt", "no prompts")
    assert_refused(make("cat", output="empty.txt"), "empty.txt", "is a file")
    (tmp_path / "model_index.json").write_text("{")
    assert_refused(make("cat", "--model", tmp_path), "model_index.json")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def base(tiny_sdxl_folder, tmp_path):
    """A model of other weights."""
    folder = tmp_path / "base"
    shutil.copytree(tiny_sdxl_folder, folder)
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights = {name: 1.5 * weight for name, weight in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    return folder


def test_another_network_makes_the_rounds_and_the_run_says_which(make, run_of, base, tmp_path):
    usual = ("a cat", "--images-per-prompt", 4, *GUIDED)
    own = run_of(*usual).pixels
    (base / "scheduler" / "scheduler_config.json").write_text("[]")  # of no use to its network
    result = make(*usual, "--undistilled", base, output="other")
    other = made(result, tmp_path / "other")
    assert (other.pixels != own).any()
    assert {row["undistilled"] for row in other.rows} == {str(base)}
    unet = run_of(*usual, "--undistilled", base / "unet", output="unet")
    assert (unet.pixels == other.pixels).all()
    assert_refused(make(*usual, "--resume", output="other"), "--undistilled is none, was")
    again = make(*usual, "--resume", "--undistilled", base, output="other")
    assert NOTHING_LEFT in said_by(again)


def test_a_run_with_a_lora_says_whether_it_may_be_off(make, run_of, tiny_lora_folder):
    usual = ("a cat", "--lora", tiny_lora_folder, *GUIDED)
    assert {row["undistilled"] for row in run_of(*usual, output="new").rows} == {"auto"}
    changed = make(*usual, "--undistilled", "none", "--resume", output="new")
    assert_refused(changed, "--undistilled is none, was auto")
    assert run_of("a cat", *GUIDED, output="plain").rows[0]["undistilled"] is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adapters", "needs a network with a LoRA"),
        ("nothing-here", "nothing-here is neither on this disk nor in the cache"),
        ("{}/net", "is a SD3Transformer2DModel, but the model UNet2DConditionModel"),
        ("{}/base", "predicts v_prediction, but the model epsilon"),
    ],
)
def test_what_is_no_undistilled_network_is_refused(make, base, tmp_path, name, message):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "config.json").write_text('{"_class_name": "SD3Transformer2DModel"}')
    file = base / "scheduler" / "scheduler_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"prediction_type": "v_prediction"}))
    assert_refused(make("a cat", "--undistilled", name.format(tmp_path)), message)


def test_an_unguided_run_can_fill_a_window(run_of, tmp_path):
    window = tmp_path / "window.safetensors"
    options = ("--diversity", 0, "--diversity-window", 2, "--window-out", window)
    run_of("cat", "--images-per-prompt", 3, *options)
    loaded = SlidingWindow.load(window)
    assert (len(loaded), loaded.size) == (2, 2)
