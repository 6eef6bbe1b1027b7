"""What all guided pipelines promise, on tiny models."""

import json
from copy import deepcopy
from pathlib import Path

import diffusers
import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file

from tests.helpers import tiny_unets as unet
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance.runs.pipelines import GUIDED

FOLDER = Path(__file__).parents[2] / "pipelines"
PROMPTS = [0, 1]
NAMES = {"SDXL": "unet", **dict.fromkeys(["PixArt-alpha", "PixArt-Sigma", "Flux"], "transformer")}
PIXART = ["PixArt-alpha", "PixArt-Sigma"]
EVERY_STEP = {"diversity_preset": "published", "diversity_scale": 0.3, "diversity_every": 1}


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def make(name, guided=True, **parts):
    """A pipeline with the same weights each time."""
    stock = CASES[name].make()
    return (GUIDED[type(stock)] if guided else type(stock))(**stock.components | parts)


def generate(pipe, name, cfg=False, images=1, text=False, **more):
    """Latents of images for `PROMPTS`."""
    given = CASES[name].arguments(PROMPTS, guided=cfg, images=images, text=text)
    return pipe(**given | more)[0]


@pytest.mark.parametrize(
    "off", [{"diversity": 0}, {"diversity_preset": "published", "diversity_scale": 0}]
)
@pytest.mark.parametrize("cfg", [False, True])
def test_without_diversity_it_is_bit_identical_to_the_stock_pipeline(name, cfg, off):
    pipe = make(name)
    assert torch.equal(generate(pipe, name, cfg, **off), generate(make(name, False), name, cfg))
    assert len(pipe.guidance.window) == 0


def test_a_call_that_fails_leaves_the_window_as_it_was(name):
    pipe = make(name)
    generate(pipe, name)

    def fail(*_):
        raise RuntimeError("out of memory")

    key = "callback" if name in PIXART else "callback_on_step_end"
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(pipe, name, diversity_window=1, **{key: fail})
    assert len(pipe.guidance.window) == 2 and pipe.guidance.window.size == 300


def test_guidance_can_be_copied_in_the_midst_of_a_call():
    pipe, copies = make("SDXL"), []

    def copy(pipe, *_):
        copies.append(deepcopy(pipe.guidance))
        return {}

    found = generate(pipe, "SDXL", diversity_memory="call", callback_on_step_end=copy)
    pipe.guidance = copies[-1]
    assert torch.equal(generate(pipe, "SDXL"), found)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_call_is_explained_after_its_first_step_which_may_be_its_last(name, steps):
    pipe = make(name)
    given = CASES[name].arguments(PROMPTS) | {"num_inference_steps": steps}
    assert "noise to signal: from" in pipe.explain(**given)
    assert pipe.explain(**given, diversity=0) == "not guided: diversity is 0"
    assert len(pipe.guidance.window) == 0 and pipe.guidance._call is None


def test_a_users_callback_gets_what_it_asks_for():
    seen = []

    def note(pipe, index, timestep, tensors):
        seen.append(sorted(tensors))
        return {}

    pipe, given = make("Flux"), {"callback_on_step_end": note}
    generate(pipe, "Flux", **given)
    generate(pipe, "Flux", **given, callback_on_step_end_tensor_inputs=["prompt_embeds"])
    with pytest.raises(ValueError, match=r"has to be in .* found \['embeds'\]"):
        generate(pipe, "Flux", callback_on_step_end_tensor_inputs=["embeds"])
    assert seen == [["latents"]] * 3 + [["prompt_embeds"]] * 3
    assert len(pipe.guidance.window) == 4 and pipe.guidance.sigma_prompt == 0.3
    assert "pooled_prompt_embeds" not in pipe.stock._callback_tensor_inputs


@pytest.mark.parametrize("auto", ["Text2Image", "Image2Image", "Inpainting"])
def test_an_auto_pipeline_is_made_from_a_guided_one_as_from_the_stock_one(name, auto):
    pipes, kind = [make(name), make(name, False)], getattr(diffusers, f"AutoPipelineFor{auto}")
    if name in PIXART and auto != "Text2Image":
        for pipe in pipes:
            with pytest.raises(ValueError, match="can't find a pipeline linked to"):
                kind.from_pipe(pipe)
        return
    found, expected = map(kind.from_pipe, pipes)
    assert type(found) is type(expected)
    assert found.components.items() >= pipes[0].components.items()


def test_guided_pipelines_made_from_one_another_share_guidance(name):
    pipe, stock = make(name), make(name, False)
    generate(pipe, name)
    other = type(pipe).from_pipe(pipe)
    assert other.guidance is pipe.guidance and len(other.guidance.window) == 2
    assert len(type(pipe).from_pipe(stock).guidance.window) == 0
    back = type(stock).from_pipe(pipe)
    assert type(back) is type(stock) and not hasattr(back, "guidance")
    assert torch.equal(generate(back, name), generate(stock, name))


@pytest.mark.parametrize("name", ["SDXL", *PIXART])
def test_it_saves_the_stock_pipeline_in_its_precision_and_loads_as_a_custom_one(name, tmp_path):
    pipe = make(name, vae=unet.vae())
    network = NAMES[name]
    getattr(pipe, network).half()
    pipe.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    assert index["_class_name"] == type(pipe).stock.__name__
    weights = load_file(tmp_path / network / "diffusion_pytorch_model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert getattr(pipe, network).dtype == torch.float16 and pipe.vae.dtype == torch.float32
    stock = DiffusionPipeline.from_pretrained(tmp_path).to(torch.empty(0).device)
    assert type(stock) is type(pipe).stock
    file = FOLDER / f"{GUIDED[type(stock)].__module__.rsplit('.', 1)[1]}.py"
    custom = {"custom_pipeline": str(file), "trust_remote_code": True}
    pipe = DiffusionPipeline.from_pretrained(tmp_path, **custom).to(stock.device)
    size = {"height": 16, "width": 16}
    plain = generate(stock, name, **size)
    assert torch.equal(generate(pipe, name, diversity=0, **size), plain)
    assert not torch.allclose(generate(pipe, name, **EVERY_STEP, **size), plain, atol=1e-3)
