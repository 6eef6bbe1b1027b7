"""Embedders against their models' own libraries, with random weights and with ImageNet's; and the
encoders of tensors against these embedders."""

import json
import shutil

import numpy as np
import open_clip
import pytest
import timm
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor
from transformers import AutoImageProcessor, Dinov2Model

from scripts.comparison import efficientnet
from tests.helpers.damage import write_bomb
from tests.helpers.tiny_encoders import save_dinov2, save_open_clip
from vendi_guidance.features.encoders import dinov2_encoder, open_clip_encoder
from vendi_guidance.features.images import open_image_embedder


def noise(*size):
    levels = np.random.default_rng(0).integers(256, size=(*size[::-1], 3), dtype=np.uint8)
    return Image.fromarray(levels)


IMAGES = [noise(40, 64), noise(64, 40), noise(32, 32), noise(9, 100), noise(1, 1)]


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """EfficientNet-Lite0 with its authors' ImageNet weights, as timm saves it."""
    folder = tmp_path_factory.mktemp("lite")
    model = efficientnet.load()
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return folder, model


@torch.no_grad()
def test_dinov2_is_its_class_token_behind_its_own_processor(dino):
    embedder = open_image_embedder(f"dinov2:{dino}", batch_size=2)
    inputs = AutoImageProcessor.from_pretrained(dino)(IMAGES, return_tensors="pt")
    expected = Dinov2Model.from_pretrained(dino)(**inputs).last_hidden_state[:, 0]
    features = embedder.embed(IMAGES)
    assert features.dtype == torch.float32 and features.shape == (5, 16)
    torch.testing.assert_close(features, expected)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_clip_is_its_image_half_behind_its_own_transform(mode, tmp_path):
    save_open_clip(tmp_path, resize_mode=mode, interpolation="bicubic")
    embedder = open_image_embedder(f"clip:{tmp_path}", batch_size=2)
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{tmp_path}")
    pixels = torch.stack(list(map(transform, IMAGES)))
    expected = model.eval().encode_image(pixels, normalize=True)
    torch.testing.assert_close(embedder.embed(IMAGES), expected)
    assert embedder.settings["preprocessing"]["resize_mode"] == mode


@torch.no_grad()
def test_timm_models_see_what_timm_shows_them(lite):
    folder, model = lite
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    pixels = torch.stack(list(map(transform, IMAGES)))
    expected = model.forward_head(model.forward_features(pixels), pre_logits=True)
    torch.testing.assert_close(open_image_embedder(f"timm:{folder}").embed(IMAGES), expected)


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("magic", ValueError, "no image embedder 'magic': use one of probe, dinov2"),
        ("clip:ViT-B-32/magic", ValueError, "no ViT-B-32/magic: use one of openai"),
        ("clip:magic", ValueError, "OpenCLIP has no weights for magic: see"),
        ("clip:ViTamin-S", ValueError, "only as the pickle .*bin in jienengchen/ViTamin-S: use"),
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


SIZES = [(64, 64), (100, 70), (50, 90), (32, 32), (20, 24)]


def image_of(size, smooth=True):
    r = torch.Generator().manual_seed(0)
    height, width = (1 + edge // 8 for edge in size) if smooth else size
    levels = torch.randint(256, (height, width, 3), generator=r, dtype=torch.uint8)
    return Image.fromarray(levels.numpy()).resize(size[::-1], Image.Resampling.BICUBIC)


def pixels(image):
    return pil_to_tensor(image)[None] / 127.5 - 1


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    """The folder of a tiny DINOv2, whose images are resized to 32 and cropped to 28."""
    folder = tmp_path_factory.mktemp("dino")
    save_dinov2(folder)
    return folder


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["dinov2", "shortest", "squash"])
def test_an_encoder_of_tensors_gives_the_features_of_images(dino, tmp_path, kind, size, smooth):
    """Images have whole numbers as pixels, also between the two passes of a resize."""
    squash = {"resize_mode": "squash", "interpolation": "bilinear"} if kind == "squash" else {}
    save_open_clip(tmp_path, **squash)
    image = image_of(size, smooth)
    if kind == "dinov2":
        encoder, embedder = dinov2_encoder(dino), open_image_embedder(f"dinov2:{dino}")
    else:
        encoder = open_clip_encoder(str(tmp_path), None)
        embedder = open_image_embedder(f"clip:{tmp_path}")
    expected = embedder.embed([image])
    assert torch.cosine_similarity(encoder(pixels(image)), expected) > 1 - 1e-5


def test_gradients_pass_to_the_pixels_and_not_to_the_weights(dino, tmp_path):
    save_open_clip(tmp_path)
    for encoder in (open_clip_encoder(str(tmp_path), None), dinov2_encoder(dino)):
        images = pixels(image_of((48, 40))).expand(2, 3, 48, 40).clone().requires_grad_()
        features = encoder(images)
        assert features.ndim == 2 and len(features) == 2
        features.square().sum().backward()
        assert images.grad.isfinite().all() and images.grad.abs().sum() > 0
        assert not any(weight.requires_grad for weight in encoder.parameters())
        assert not encoder.training


def test_preprocessing_that_is_not_covered_is_refused(tmp_path):
    save_open_clip(tmp_path, resize_mode="longest")
    with pytest.raises(ValueError, match="resizes images to 32x32 in mode 'longest'"):
        open_clip_encoder(str(tmp_path), None)
    save_dinov2(tmp_path)
    for options in ({"size": {"height": 28, "width": 28}}, {"do_resize": False, "size": None}):
        settings = {"image_processor_type": "BitImageProcessor", **options}
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
        with pytest.raises(ValueError, match=r"preprocessing of .* is not supported"):
            dinov2_encoder(tmp_path)
