"""Which class serves a model."""

import diffusers
import pytest
from diffusers.utils import DummyObject

from vendi_guidance import VendiGuidedFluxPipeline, VendiGuidedPixArtSigmaPipeline
from vendi_guidance.runs.pipelines import GUIDED, guided_class, stock_class


def test_our_own_class_serves_a_model_where_there_is_one():
    assert guided_class(stock_class("FluxPipeline")) is VendiGuidedFluxPipeline
    assert guided_class(stock_class("PixArtSigmaPipeline")) is VendiGuidedPixArtSigmaPipeline
    assert all(guided_class(guided.stock) is guided for guided in GUIDED)


def test_the_others_get_the_callback_and_diversity_arguments():
    guided = guided_class(stock_class("StableDiffusion3Pipeline"))
    assert guided.stock is diffusers.StableDiffusion3Pipeline
    with pytest.raises(TypeError, match="takes no 'diversity_x'"):
        guided.__call__(None, diversity_x=1)


@pytest.mark.parametrize("name", ["NoSuchPipeline", "UNet2DConditionModel", "__version__", "utils"])
def test_what_is_no_pipeline_of_diffusers_is_named(name):
    with pytest.raises(ValueError, match=f"no '{name}' in diffusers"):
        stock_class(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("StableDiffusionImg2ImgPipeline", "needs image besides a prompt"),
        ("FluxControlPipeline", "needs control_image"),
        ("WanPipeline", "makes videos"),
        ("StableCascadeCombinedPipeline", "runs two pipelines"),
        ("WuerstchenPriorPipeline", "does not make images"),
        ("DDPMPipeline", "takes no prompt"),
        ("StableAudioPipeline", "does not make images"),
        ("IFPipeline", "takes no callback_on_step_end"),
        ("PRXPipeline", "ignores what its callback returns"),
    ],
)
def test_a_pipeline_that_cannot_be_served_says_why(name, reason):
    with pytest.raises(ValueError, match=f"cannot be used: {name} {reason}"):
        stock_class(name)


def test_a_missing_library_is_named(monkeypatch):
    lacking = DummyObject("Lacking", (), {"_backends": ["torch", "onnx"]})
    monkeypatch.setattr(diffusers, "KolorsPipeline", lacking)
    with pytest.raises(ImportError, match="KolorsPipeline needs onnx: pip install onnx"):
        stock_class("KolorsPipeline")
