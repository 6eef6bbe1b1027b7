"""Where samples are compared: the image space on tiny decoders and encoders, and exemplars."""

from functools import partial

import pytest
import torch
from diffusers import AutoencoderKLQwenImage
from PIL import Image

from tests.helpers import tiny_unets as unet
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.image_space import ImageSpace, exemplar_features
from vendi_guidance.adapter.vae import decode
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction

PROMPTS = [0, 1]
SIZE = (16, 16)
published = partial(VendiGuidance, preset="published")
MEANS = {"latents_mean": [0.3, -0.2, 0.1, 0.5], "latents_std": [0.7, 1.2, 0.9, 2.0]}


def vae(**config):
    made = unet.vae()
    made.register_to_config(**config)
    return made


def qwen_vae():
    shape = {"base_dim": 4, "z_dim": 4, "dim_mult": [1, 1], "num_res_blocks": 1}
    return AutoencoderKLQwenImage(**shape, temperal_downsample=[False], **MEANS)


DECODERS = {
    "SDXL": vae,
    "SDXL with means": lambda: vae(**MEANS),
    "SD3": lambda: vae(shift_factor=0.3),
    "Flux": lambda: vae(shift_factor=0.3),
    "Qwen-Image": qwen_vae,
    "AnimateDiff": vae,
}
PIPELINES = list(DECODERS)[:-1]


def pipeline(name):
    """A tiny pipeline that decodes."""
    stock = CASES[name.removesuffix(" with means")].make()
    made = type(stock)(**stock.components | {"vae": DECODERS[name]()})
    return made.to(torch.empty(0).device)


def draw(pipe, name, output_type, **more):
    """Two 16x16 pictures, or their latents."""
    given = CASES[name.removesuffix(" with means")].arguments(PROMPTS)
    given |= {"height": 16, "width": 16, "output_type": output_type}
    return pipe(**given | more)[0]


def encoder(width=5):
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.Tanh(),
        torch.nn.AdaptiveAvgPool2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(36, width),
    ).to(torch.empty(0).device)


def with_gradient(module):
    return [name for name, weight in module.named_parameters() if weight.grad is not None]


@pytest.mark.parametrize("name", PIPELINES)
def test_latents_are_decoded_as_the_pipeline_decodes_them(name):
    pipe = pipeline(name)
    decoded = decode(pipe, draw(pipe, name, "latent"), SIZE)
    pictures = draw(pipe, name, "pt")
    assert torch.allclose((decoded / 2 + 0.5).clamp(0, 1), pictures, atol=1e-5)


@pytest.mark.parametrize("name", ["SDXL", "SDXL with means", "SD3"])
def test_the_gradient_in_latents_is_that_of_the_features_by_differences(name):
    pipe = pipeline(name)
    space = ImageSpace(encoder())
    pipe.vae.double()
    space.encoder.double()
    z, noise = torch.randn(2, 2, 4, 8, 8, dtype=torch.float64)

    def view(z):  # a sample is 0.6 x0 + 0.8 noise
        denoised = (z - 0.8 * noise) / 0.6
        return space.view(pipe, z, Prediction(denoised, 0.6, 0.8))

    gradient, way = torch.randn(2, 5, dtype=torch.float64), torch.randn_like(z)
    slope = (view(z + 1e-5 * way).features - view(z - 1e-5 * way).features) / 2e-5
    pulled = view(z).pull_back(gradient)
    assert pulled.shape == z.shape
    assert torch.allclose((pulled * way).sum((1, 2, 3)), (slope * gradient).sum(1), rtol=1e-6)


def test_the_features_are_those_of_the_prediction_and_remembered_ones_of_the_latents():
    pipe = pipeline("SDXL")
    space = ImageSpace(encoder())
    latents = torch.randn(3, 4, 8, 8)
    with torch.no_grad():
        expected = space.encoder(decode(pipe, latents).clamp(-1, 1))
    seen = space.view(pipe, 0 * latents, Prediction(latents, 0.5, 0.5)).features
    assert torch.allclose(seen, expected, atol=1e-6)
    assert torch.allclose(space.remember(pipe, latents), expected, atol=1e-6)
    with pytest.raises(ValueError, match="needs the scheduler's prediction"):
        space.view(pipe, latents, None)


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_gradients_pass_in_any_context_and_weights_are_left_as_they_were(context):
    pipe = pipeline("SDXL")
    space = ImageSpace(encoder())
    pipe.vae.decoder.conv_in.requires_grad_(False)
    with context():
        latents = torch.randn(2, 4, 8, 8).requires_grad_(context is torch.enable_grad)
        prediction = Prediction(latents, 0.5, 0.5)
        view = space.view(pipe, prediction.denoised, prediction)
        pulled = view.pull_back(torch.ones_like(view.features))
        assert pulled.abs().sum() > 0
    assert not pulled.requires_grad and not view.features.requires_grad
    assert with_gradient(pipe.vae) == with_gradient(space.encoder) == []
    assert all(weight.requires_grad for weight in space.encoder.parameters())
    frozen = {name for name, weight in pipe.vae.named_parameters() if not weight.requires_grad}
    assert frozen == {"decoder.conv_in.weight", "decoder.conv_in.bias"}


@pytest.mark.parametrize("overflows", [False, True])
def test_small_gradients_survive_half_precision_and_a_decoder_that_overflows_there(overflows):
    pipe = pipeline("SDXL")
    pipe.vae.register_to_config(force_upcast=overflows)
    pipe.vae.half()
    weight, used = pipe.vae.decoder.conv_out.weight.clone(), []
    pipe.vae.decoder.register_forward_hook(lambda *given: used.append(given[2].dtype))
    space, latents = ImageSpace(encoder().half()), torch.randn(1, 4, 8, 8)
    pull_back = space.view(pipe, latents, Prediction(latents, 1.0, 0.0)).pull_back
    large, small = pull_back(torch.ones(1, 5)), pull_back(torch.full((1, 5), 1e-12))
    assert torch.allclose(small * 1e12, large, rtol=1e-3) and large.abs().sum() > 0
    assert torch.equal(pull_back(torch.zeros(1, 5)), torch.zeros_like(latents))
    assert {*used} == {torch.float32 if overflows else torch.float16}
    assert torch.equal(pipe.vae.decoder.conv_out.weight, weight) and weight.dtype == torch.float16


def test_a_picture_that_is_not_finite_spoils_only_its_own_gradient():
    pipe = pipeline("SDXL")
    space, latents = ImageSpace(encoder()), torch.randn(2, 4, 8, 8)
    latents[0, 0, 0, 0] = torch.nan
    view = space.view(pipe, latents, Prediction(latents, 1.0, 0.0))
    finite = view.pull_back(torch.ones(2, 5)).flatten(1).isfinite().all(dim=1)
    assert finite.tolist() == [False, True]


@pytest.mark.parametrize("name", ["SDXL", "Flux", "Qwen-Image"])
def test_guides_a_pipeline_in_the_image_space(name):
    pipe = pipeline(name)
    plain = draw(pipe, name, "pt")
    space = ImageSpace(encoder(), SIZE)
    guidance = published(objective="rke", scale=0.3, every=1, space=space)
    guided = draw(pipe, name, "pt", **guidance.on(pipe))
    assert guided.isfinite().all() and guidance.skipped == 0
    assert not torch.allclose(guided, plain, atol=1e-3)
    assert guidance.window.latent_shape == (5,)
    features = torch.nn.functional.normalize(space.of_pictures(2 * guided - 1))
    assert torch.allclose(guidance.window.features, features, atol=1e-4)
    assert with_gradient(pipe.vae) == with_gradient(space.encoder) == []


def test_what_cannot_be_decoded_or_encoded_is_said_in_a_sentence():
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got <class .*Flatten"):
        ImageSpace(torch.nn.Flatten)
    space, films = ImageSpace(encoder()), pipeline("AnimateDiff")
    for pipe, shape, message in (
        (pipeline("Flux"), (16, 16), "FluxPipeline packs its latents: give the images' size"),
        (CASES["Kandinsky 2.2"].make(), (4, 8, 8), "KandinskyV22Pipeline has no VAE"),
        (films, (4, 3, 8, 8), r"AnimateDiffPipeline decodes latents of shape \(1, 4, 3"),
    ):
        with pytest.raises(ValueError, match=message):
            space.remember(pipe, torch.zeros(1, *shape))
    for pipe, count, space, message in (
        (films, 1, "latent", "does not generate images"),
        (pipeline("SDXL"), 0, "latent", "at least one image, got none"),
        (pipeline("SDXL"), 1, "latnt", "space must be one of latent, denoised, got 'latnt'"),
    ):
        with pytest.raises(ValueError, match=message):
            exemplar_features(pipe, [Image.new("RGB", SIZE)] * count, space)


def photographs(count=3, size=SIZE):
    r = torch.Generator().manual_seed(5)
    pixels = torch.randint(256, (count, *size, 3), generator=r, dtype=torch.uint8)
    return [Image.fromarray(one.numpy()) for one in pixels], pixels.permute(0, 3, 1, 2) / 127.5 - 1


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", PIPELINES)
def test_exemplars_are_latents_that_decode_to_what_the_vae_makes_of_the_pictures(name, space):
    pipe = pipeline(name)
    images, pixels = photographs()
    features = exemplar_features(pipe, images, space)
    assert features.shape[1:] == draw(pipe, name, "latent").shape[1:]
    pixels = pixels[:, :, None] if name == "Qwen-Image" else pixels
    with torch.no_grad():
        again = pipe.vae.decode(pipe.vae.encode(pixels).latent_dist.mode()).sample
    again = again.squeeze(2) if name == "Qwen-Image" else again
    assert torch.allclose(decode(pipe, features, SIZE), again, atol=1e-4)


def test_exemplars_in_the_image_space_are_features_of_the_pictures_themselves():
    pipe = pipeline("SDXL")
    images, pixels = photographs()
    space = ImageSpace(encoder())
    features = exemplar_features(pipe, images, space)
    with torch.no_grad():
        assert torch.allclose(features, space.encoder(pixels), atol=1e-5)
    grey = Image.new("I;16", SIZE, 100 * 257), Image.new("L", SIZE, 100)
    clear = Image.new("RGBA", SIZE, (0, 0, 0, 0)), Image.new("RGB", SIZE, "white")
    for one, same in (grey, clear):
        found = (exemplar_features(pipe, [image], space) for image in (one, same))
        assert torch.equal(*found)
    smaller = exemplar_features(pipe, images, size=(8, 12))
    assert smaller.shape == (3, 4, 4, 6)
