"""Weights that are out of reach, incomplete or pickled, and libraries that are not installed."""

import re
import shutil
import sys

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.helpers.damage import drop_weight
from tests.helpers.tiny_encoders import save_bert, save_dinov2, save_open_clip
from vendi_guidance.features.images import open_image_embedder as of_images
from vendi_guidance.features.prompts import open_prompt_embedder as of_prompts

COMMANDS = [
    (of_images, "dinov2", "facebook/dinov2-large '--include=*.safetensors'"),
    (of_images, "dinov2:me/mine", "me/mine "),
    (of_images, "clip", "timm/vit_base_patch32_clip_224.openai --include=open_clip_model.safe"),
    (of_images, "clip:ViT-B-32/laion2b_s34b_b79k", "laion/CLIP-ViT-B-32-laion2B-s34B-b79K "),
    (of_images, "clip:hf-hub:me/mine", "me/mine "),
    (of_images, "timm:resnet18", "timm/resnet18.a1_in1k '--include=*.safetensors'"),
    (of_images, "timm:me/mine", "me/mine "),
    (of_prompts, "sentence-transformers", "sentence-transformers/all-MiniLM-L6-v2 '--include="),
    (of_prompts, "sentence-transformers:me/mine", "me/mine '--include="),
    (of_prompts, "clip:ViT-B-16-SigLIP/webli", "timm/ViT-B-16-SigLIP --include="),
]


@pytest.mark.parametrize(("open_embedder", "spec", "wanted"), COMMANDS)
def test_the_command_that_fetches_weights_out_of_reach_is_named(open_embedder, spec, wanted, hub):
    with pytest.raises(FileNotFoundError) as caught:
        open_embedder(spec)
    assert f"`hf download {wanted}" in str(caught.value) and "\n" not in str(caught.value)


def save_timm(folder):
    timm.models.save_for_hf(timm.create_model("test_vit"), folder, safe_serialization=True)


SAVE = {"dinov2": save_dinov2, "clip": save_open_clip, "timm": save_timm}
SAVE["sentence-transformers"] = save_bert


@pytest.mark.parametrize(
    ("open_embedder", "kind"),
    [
        *((of_images, kind) for kind in ("dinov2", "clip", "timm", "probe")),
        *((of_prompts, kind) for kind in ("clip", "sentence-transformers", "sdxl")),
    ],
)
def test_networks_whose_files_lack_weights_are_refused(open_embedder, kind, tmp_path, request):
    if kind in SAVE:
        SAVE[kind](tmp_path)
    else:
        whole = request.getfixturevalue(f"tiny_{kind}_folder")
        shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "text_encoder_2" if kind == "sdxl" else tmp_path
    name = drop_weight(folder, "weight" if open_embedder is of_images else "embedding")
    with pytest.raises(ValueError, match=re.escape(name)) as refused:
        open_embedder(f"{kind}:{tmp_path}")
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


def test_pickled_clip_weights_are_read_once_converted_as_the_message_says(tmp_path, monkeypatch):
    save_open_clip(tmp_path)
    images = [Image.new("RGB", (40, 30), "red")]
    expected = of_images(f"clip:{tmp_path}").embed(images)
    weights = tmp_path / "open_clip_model.safetensors"
    torch.save(load_file(weights), tmp_path / "open_clip_pytorch_model.bin")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="pickled weights are not read: ") as caught:
        of_images(f"clip:{tmp_path}")
    monkeypatch.chdir(tmp_path)
    names = {"FILE": "open_clip_pytorch_model.bin"}
    for line in re.findall("`(.*?)`", str(caught.value)):
        exec(line, names)
    assert torch.equal(of_images(f"clip:{tmp_path}").embed(images), expected)


@pytest.mark.parametrize(
    ("open_embedder", "spec", "package"),
    [
        (of_images, "clip", "open_clip_torch"),
        (of_images, "timm:resnet18", "timm"),
        (of_prompts, "clip", "open_clip_torch"),
        (of_prompts, "sentence-transformers", "sentence-transformers"),
    ],
)
def test_a_missing_library_is_named(open_embedder, spec, package, monkeypatch):
    module = package.removesuffix("_torch").replace("-", "_")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install .*\[embedders\]"):
        open_embedder(spec)
