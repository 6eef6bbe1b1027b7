"""LoRAs: which file is loaded, and what is refused."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from tests.helpers import tiny_folders
from tests.helpers.damage import write_bomb
from tests.helpers.runs import put_in_cache
from vendi_guidance import VendiGuidedPixArtSigmaPipeline, VendiGuidedSDXLPipeline
from vendi_guidance.runs.lora import WEIGHTS, find_lora
from vendi_guidance.runs.models import load_model
from vendi_guidance.runs.options import RunOptions

PICKLE = "pytorch_lora_weights.bin"


@pytest.fixture
def folder(tiny_lora_folder, tmp_path) -> Path:
    return shutil.copytree(tiny_lora_folder, tmp_path / "lora")


def load(model, lora, pipeline=VendiGuidedSDXLPipeline):
    return load_model(pipeline, model, RunOptions(dtype="float32"), "cpu", lora)


def test_a_folders_own_weights_or_its_only_file_are_found(folder):
    weights = folder / WEIGHTS
    shutil.copy(weights, folder / "a.safetensors")
    assert find_lora(str(folder)) == weights == find_lora(str(weights))
    weights.unlink()
    assert find_lora(str(folder)) == folder / "a.safetensors"
    (folder / "b.safetensors").touch()
    with pytest.raises(FileNotFoundError, match="2 other safetensors files: name the file"):
        find_lora(str(folder))
    with pytest.raises(FileNotFoundError, match="has no safetensors file: only those"):
        find_lora(str(folder.parent))


def test_a_name_on_the_hub_is_found_in_the_cache_without_a_network(folder, hub):
    shutil.copy(folder / WEIGHTS, folder / "four.safetensors")
    snapshot = put_in_cache(hub, folder)
    for name, file in {"me/mine": WEIGHTS, "me/mine/four.safetensors": "four.safetensors"}.items():
        assert find_lora(name) == snapshot / file
    with pytest.raises(
        FileNotFoundError, match=r"--lora me/yours is neither a file nor a folder, and"
    ):
        find_lora("me/yours")


@pytest.mark.parametrize("name", ["", "lora", "./here", "/", "a\0b", "x" * 5000, "a b/c"])
def test_a_missing_lora_is_reported_in_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        find_lora(name)
    assert "\n" not in str(caught.value)


def test_without_peft_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r'pip install "vendi-guidance\[lora\]"'):
        find_lora(str(folder))


def test_a_pickle_is_never_loaded(folder, tmp_path, monkeypatch):
    trace = tmp_path / "trace"
    (folder / WEIGHTS).unlink()
    write_bomb(folder / PICKLE, trace)
    monkeypatch.chdir(folder)
    for name in (folder, PICKLE, folder / PICKLE, "me/mine/weights.bin"):
        with pytest.raises(FileNotFoundError, match="safetensors"):
            find_lora(str(name))
    assert not trace.exists()


def test_a_lora_is_loaded_enabled_and_can_be_disabled(folder, tiny_sdxl_folder):
    @torch.no_grad()
    def predict(pipe) -> torch.Tensor:
        conditions = {"text_embeds": torch.ones(1, 16), "time_ids": torch.ones(1, 6)}
        given = torch.ones(1, 4, 8, 8), 500, torch.ones(1, 4, 32)
        return pipe.unet(*given, added_cond_kwargs=conditions).sample

    plain = load(tiny_sdxl_folder, None)
    pipe = load(tiny_sdxl_folder, folder / WEIGHTS)
    assert not torch.allclose(predict(pipe), predict(plain), rtol=0.01)
    pipe.disable_lora()
    assert torch.equal(predict(pipe), predict(plain))


def test_a_lora_that_does_not_fit_is_reported_in_one_sentence(folder, tiny_sdxl_folder, tmp_path):
    file = folder / WEIGHTS
    wide = {f"unet.down_blocks.1.resnets.0.conv1.lora_{k}.weight": torch.ones(3, 5) for k in "AB"}
    other = {"transformer.x.lora_A.weight": torch.ones(2, 2)}
    for content, words in (
        (b"not safetensors", ""),
        (save(wide), "this StableDiffusionXLPipeline"),
        (save(other), ".*it has no weights for the parts of this"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"does not fit {words}") as caught:
            load(tiny_sdxl_folder, file)
        assert "\n" not in str(caught.value)
    tiny_folders.save("PixArt-Sigma", tmp_path / "pixart")
    with pytest.raises(
        ValueError, match="PixArtSigmaPipeline does not support LoRAs: leave --lora out"
    ):
        load(tmp_path / "pixart", file, VendiGuidedPixArtSigmaPipeline)
