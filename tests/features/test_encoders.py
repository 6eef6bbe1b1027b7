"""Preprocessing on tensors against that of the models' own libraries, on random weights.

Their pixels are whole numbers from 0 to 255, also between the two passes of a resize.
"""

import json

import open_clip
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor
from transformers import AutoImageProcessor, Dinov2Model

from tests.helpers.tiny_encoders import save_dinov2, save_open_clip
from vendi_guidance.features.encoders import dinov2_encoder, open_clip_encoder

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


def by_its_library(kind, folder, image):
    """The encoder, the pixels that its own library makes of an image, and what it makes of them."""
    if kind == "dinov2":
        inputs = AutoImageProcessor.from_pretrained(folder)(image, return_tensors="pt")
        features = Dinov2Model.from_pretrained(folder)(**inputs).last_hidden_state[:, 0]
        return dinov2_encoder(folder), inputs["pixel_values"][0], features
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    seen = transform(image)
    return open_clip_encoder(str(folder), None), seen, model.eval().encode_image(seen[None])


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["dinov2", "shortest", "squash"])
def test_an_encoder_sees_what_its_own_library_gives_it(dino, tmp_path, kind, size, smooth):
    squash = {"resize_mode": "squash", "interpolation": "bilinear"} if kind == "squash" else {}
    save_open_clip(tmp_path, **squash)
    image = image_of(size, smooth)
    encoder, seen, features = by_its_library(kind, dino if kind == "dinov2" else tmp_path, image)
    assert isinstance(encoder.resize.size, tuple) == (kind == "squash")
    if smooth:
        std = torch.tensor(encoder.normalize.std)[:, None, None]
        deviation = (encoder.preprocess(pixels(image))[0] - seen) * std  # of pixels from 0 to 1
        assert deviation.abs().max() < 1.5 / 255
    assert torch.cosine_similarity(encoder(pixels(image)), features) > 1 - 1e-5


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
