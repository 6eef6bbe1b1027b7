"""Tiny pipelines of 2025 and later, around a transformer that predicts velocities."""

from typing import Any

import diffusers
from diffusers import FlowMatchEulerDiscreteScheduler

from tests.helpers.tiny_text import WIDTH, Letters
from tests.helpers.tiny_transformers import HEADS, NO_TEXT, flow, text

LAYERS = 2  # of text encoders whose hidden states are read


def krea2() -> Any:
    transformer = diffusers.Krea2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_key_value_heads=2,
        intermediate_size=16,
        timestep_embed_dim=8,
        text_hidden_dim=WIDTH,
        num_text_layers=LAYERS,
        text_num_attention_heads=2,
        text_num_key_value_heads=2,
        text_intermediate_size=16,
        num_layerwise_text_blocks=1,
        num_refiner_text_blocks=1,
        axes_dims_rope=(2, 2, 4),
        **HEADS,
    )
    return flow(diffusers.Krea2Pipeline, transformer)


def flux2() -> Any:
    return flow(diffusers.Flux2Pipeline, _flux2())


def flux2_klein() -> Any:
    """Its VAE, which it asks even for latents, halves height and width."""
    vae = diffusers.AutoencoderKLFlux2(
        latent_channels=4,
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        layers_per_block=1,
        sample_size=16,
        mid_block_add_attention=False,
    )
    return flow(diffusers.Flux2KleinPipeline, _flux2(guidance_embeds=False), NO_TEXT | {"vae": vae})


def _flux2(**more: Any) -> Any:
    return diffusers.Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        joint_attention_dim=WIDTH,
        timestep_guidance_channels=8,
        axes_dims_rope=(2, 2, 2, 2),
        **HEADS,
        **more,
    )


def ovis_image() -> Any:
    transformer = diffusers.OvisImageTransformer2DModel(
        in_channels=16,
        out_channels=16,
        num_layers=1,
        num_single_layers=1,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(2, 2, 4),
        **HEADS,
    )
    return flow(diffusers.OvisImagePipeline, transformer)


class Processor:
    """As much of a multimodal processor as Qwen-Image 2.1 needs to be made."""

    class tokenizer(Letters):  # noqa: N801
        @staticmethod
        def encode(text: str) -> list[int]:
            return [0]

    @staticmethod
    def apply_chat_template(*_: Any, **__: Any) -> list[list[int]]:
        return [[0]]


def qwen_image_2_1() -> Any:
    transformer = diffusers.QwenImage21Transformer2DModel(
        in_channels=16,
        out_channels=16,
        num_layers=1,
        context_in_dim=WIDTH,
        axes_dims_rope=(2, 2, 4),
        **HEADS,
    )
    return diffusers.QwenImage21Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=None,
        text_encoder=None,
        processor=Processor(),
    )


def wan() -> Any:
    transformer = diffusers.WanTransformer3DModel(
        in_channels=4,
        out_channels=4,
        text_dim=WIDTH,
        freq_dim=8,
        ffn_dim=16,
        num_layers=1,
        **{**HEADS, "attention_head_dim": 12},
    )
    return flow(diffusers.WanPipeline, transformer, text())
