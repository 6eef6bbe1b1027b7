"""What is pushed to the Hugging Face hub, loaded as from there, but from folders."""

import re
import sys
from pathlib import Path

import pytest
import torch
from diffusers import DiffusionPipeline, ModularPipelineBlocks
from diffusers.modular_pipelines.stable_diffusion_xl import StableDiffusionXLAutoBlocks
from huggingface_hub import RepoCard

from scripts.hub import main
from tests.helpers.commands import invoke
from tests.helpers.tiny_folders import save

LICENCES = ("apache-2.0", "mit", "other")
PROMPTS = ["cat", "cat"]
EVERY_STEP = {"diversity_preset": "published", "diversity_scale": 0.3, "diversity_every": 1}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "made"
    done = invoke(main, folder, "--owner", "me")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(autouse=True)
def modules(monkeypatch, tmp_path):
    """A cache of modules for each test: diffusers calls all that are from folders alike."""
    monkeypatch.setattr("diffusers.utils.dynamic_modules_utils.HF_MODULES_CACHE", str(tmp_path))
    yield
    for name in [it for it in sys.modules if it.startswith("diffusers_modules")]:
        del sys.modules[name]


@pytest.mark.parametrize("kind", ["sdxl", "flux", "pixart-sigma"])
def test_a_custom_pipeline_guides_a_stock_model(kind, hub, tiny_sdxl_folder, tmp_path):
    models = {"flux": "Flux", "pixart-sigma": "PixArt-Sigma"}
    model = tmp_path / "model" if kind in models else tiny_sdxl_folder
    if kind in models:
        save(models[kind], model)

    def images(**more):
        custom = {"custom_pipeline": str(hub / f"vendi-guided-{kind}"), "trust_remote_code": True}
        pipe = DiffusionPipeline.from_pretrained(model, **(custom if more else {}))
        given = {"num_inference_steps": 3, "output_type": "latent", "guidance_scale": 3.0}
        given["generator"] = torch.Generator().manual_seed(0)
        return pipe(PROMPTS, **{"height": 32, "width": 32}, **given, **more).images

    stock = images()
    assert torch.equal(images(diversity=0), stock)
    assert not torch.allclose(images(**EVERY_STEP), stock, atol=1e-3)


def test_modular_blocks_guide_their_loops_and_remember(hub, tiny_sdxl_folder):
    folder = hub / "vendi-guided-modular-sdxl"
    blocks = ModularPipelineBlocks.from_pretrained(folder, trust_remote_code=True)

    def latents(blocks, **more):
        pipe = blocks.init_pipeline(str(tiny_sdxl_folder))
        pipe.load_components(names=["unet", "vae", "scheduler", "text_encoder", "tokenizer"])
        pipe.load_components(names=["text_encoder_2", "tokenizer_2"])
        given = {"num_inference_steps": 3, "generator": torch.Generator().manual_seed(0)}
        given |= {"height": 32, "width": 32, "output": "latents"}
        return pipe(prompt=PROMPTS, **given, **more)

    stock = latents(StableDiffusionXLAutoBlocks())
    assert torch.equal(latents(blocks, diversity=0), stock)
    assert not torch.allclose(latents(blocks), stock, atol=1e-3)
    memory = blocks.sub_blocks["diversity"].guidance.window
    assert len(memory) == len(PROMPTS)  # of a copy of the blocks, by a pipeline that is gone
    latents(blocks.get_workflow("text2image"), diversity=1)
    assert len(memory) == 2 * len(PROMPTS)
    [dial] = [it for it in blocks.inputs if it.name == "diversity"]
    assert dial.type_hint is float and dial.default == 0.5 and dial.description
    assert [it.name for it in blocks.outputs if not it.description] == []


def test_every_repository_has_a_card_with_a_licence_and_no_name_of_ours(hub):
    cards = {folder.name: RepoCard.load(folder / "README.md") for folder in hub.iterdir()}
    assert {"demo-photos", "demo-pictures", "vendi-guided-sdxl"} <= cards.keys()
    for name, card in cards.items():
        assert card.data.to_dict()["license"] in LICENCES, name
        assert not re.search(r'\$|"assets/|\]\(\.\.', card.text), name
        if "guided" in name:
            assert f"me/{name}" in card.text and "No model of full size has been run" in card.text


def test_every_file_of_a_pipeline_is_pushed(hub):
    files = (Path(__file__).parents[2] / "pipelines").glob("vendi_guided_*.py")
    expected = {file.stem.replace("_", "-"): file.read_text("utf-8") for file in files}
    pushed = {it.parent.name: it.read_text("utf-8") for it in hub.glob("*/pipeline.py")}
    assert pushed == expected
