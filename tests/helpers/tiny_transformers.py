"""Tiny pipelines around a transformer, random weights, from PixArt to video."""

from typing import Any

import diffusers
from diffusers import FlowMatchEulerDiscreteScheduler

from tests.helpers.tiny_text import TOKENS, WIDTH, Letters, LettersEncoder

HEADS: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 8}
FLUX: dict[str, Any] = {
    "in_channels": 16,
    "num_layers": 1,
    "num_single_layers": 1,
    "joint_attention_dim": WIDTH,
    "axes_dims_rope": (2, 2, 4),
    **HEADS,
}
NO_TEXT: dict[str, Any] = {"vae": None, "tokenizer": None, "text_encoder": None}


def text() -> dict[str, Any]:
    """A tokenizer and a text encoder, and no VAE."""
    return {"vae": None, "tokenizer": Letters(), "text_encoder": LettersEncoder()}


def flow(pipeline: Any, transformer: Any, parts: dict[str, Any] = NO_TEXT) -> Any:
    """A pipeline with the scheduler of flow models."""
    return pipeline(transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler(), **parts)


def stable_diffusion_3() -> Any:
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        joint_attention_dim=2 * WIDTH,
        caption_projection_dim=16,
        pooled_projection_dim=2 * WIDTH,
        **HEADS,
    )
    return diffusers.StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=None,
        tokenizer=Letters(),
        tokenizer_2=Letters(),
        tokenizer_3=Letters(),
        text_encoder=LettersEncoder(pooled=True),
        text_encoder_2=LettersEncoder(pooled=True),
        text_encoder_3=LettersEncoder(2 * WIDTH),
    )


def flux() -> Any:
    return diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(pooled_projection_dim=WIDTH, **FLUX),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=None,
        tokenizer=Letters(),
        tokenizer_2=Letters(),
        text_encoder=LettersEncoder(),
        text_encoder_2=LettersEncoder(),
    )


def chroma() -> Any:
    return diffusers.ChromaPipeline(
        transformer=diffusers.ChromaTransformer2DModel(
            approximator_num_channels=8, approximator_hidden_dim=8, approximator_layers=1, **FLUX
        ),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=None,
        tokenizer=Letters(),
        text_encoder=LettersEncoder(),
    )


def pixart_alpha(size: int = 8) -> Any:
    return diffusers.PixArtAlphaPipeline(
        transformer=_pixart(size), scheduler=diffusers.DDIMScheduler(), **NO_TEXT
    )


def pixart_sigma(size: int = 8) -> Any:
    return diffusers.PixArtSigmaPipeline(
        transformer=_pixart(size), scheduler=diffusers.DDIMScheduler(), **NO_TEXT
    )


def _pixart(size: int) -> Any:
    return diffusers.PixArtTransformer2DModel(
        sample_size=size,
        num_layers=1,
        cross_attention_dim=16,
        caption_channels=WIDTH,
        use_additional_conditions=False,
        **HEADS,
    )


def sana(size: int = 8) -> Any:
    transformer = diffusers.SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_cross_attention_heads=2,
        cross_attention_head_dim=8,
        cross_attention_dim=16,
        caption_channels=WIDTH,
        sample_size=size,
        **HEADS,
    )
    return flow(diffusers.SanaPipeline, transformer)


def aura_flow() -> Any:
    transformer = diffusers.AuraFlowTransformer2DModel(
        sample_size=8,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        joint_attention_dim=WIDTH,
        caption_projection_dim=16,
        pos_embed_max_size=64,
        **HEADS,
    )
    return flow(diffusers.AuraFlowPipeline, transformer)


def lumina() -> Any:
    transformer = diffusers.LuminaNextDiT2DModel(
        sample_size=8,
        hidden_size=24,
        num_layers=1,
        num_attention_heads=3,
        num_kv_heads=1,
        multiple_of=8,
        cross_attention_dim=WIDTH,
    )
    return flow(diffusers.LuminaPipeline, transformer, text())


def lumina2(tokens: int = 64) -> Any:
    transformer = diffusers.Lumina2Transformer2DModel(
        sample_size=8,
        in_channels=4,
        hidden_size=24,
        num_layers=1,
        num_refiner_layers=1,
        num_attention_heads=3,
        num_kv_heads=1,
        multiple_of=8,
        axes_dim_rope=(4, 2, 2),
        axes_lens=(tokens, 16, 16),
        cap_feat_dim=WIDTH,
    )
    return flow(diffusers.Lumina2Pipeline, transformer, text())


def hunyuan_dit(tokens: int = TOKENS, tokens_2: int = TOKENS) -> Any:
    transformer = diffusers.HunyuanDiT2DModel(
        in_channels=4,
        patch_size=2,
        sample_size=8,
        hidden_size=16,
        num_layers=1,
        cross_attention_dim=WIDTH,
        cross_attention_dim_t5=WIDTH,
        pooled_projection_dim=8,
        text_len=tokens,
        text_len_t5=tokens_2,
        **HEADS,
    )
    return diffusers.HunyuanDiTPipeline(
        transformer=transformer,
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        tokenizer_2=Letters(),
        text_encoder_2=LettersEncoder(),
        **text(),
    )


def cogview4() -> Any:
    transformer = diffusers.CogView4Transformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=1,
        text_embed_dim=WIDTH,
        time_embed_dim=8,
        condition_dim=4,
        pos_embed_max_size=8,
        sample_size=8,
        rope_axes_dim=(8, 8),
        **HEADS,
    )
    return flow(diffusers.CogView4Pipeline, transformer, text())


def qwen_image() -> Any:
    transformer = diffusers.QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=1,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(2, 2, 4),
        **HEADS,
    )
    return flow(diffusers.QwenImagePipeline, transformer)


def z_image() -> Any:
    transformer = diffusers.ZImageTransformer2DModel(
        in_channels=4,
        dim=16,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=WIDTH,
        axes_dims=[4, 2, 2],
        axes_lens=[256, 32, 32],
    )
    return flow(diffusers.ZImagePipeline, transformer)


def ltx() -> Any:
    transformer = diffusers.LTXVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        cross_attention_dim=16,
        num_layers=1,
        caption_channels=WIDTH,
        **HEADS,
    )
    return flow(diffusers.LTXPipeline, transformer, text())


def cogvideox() -> Any:
    transformer = diffusers.CogVideoXTransformer3DModel(
        in_channels=4,
        out_channels=4,
        time_embed_dim=8,
        text_embed_dim=WIDTH,
        num_layers=1,
        sample_width=8,
        sample_height=8,
        sample_frames=9,
        max_text_seq_length=TOKENS,
        **HEADS,
    )
    return diffusers.CogVideoXPipeline(
        transformer=transformer, scheduler=diffusers.CogVideoXDDIMScheduler(), **NO_TEXT
    )
