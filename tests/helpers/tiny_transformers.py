"""Tiny transformer pipelines with random weights, for images and videos."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import diffusers
from diffusers import FlowMatchEulerDiscreteScheduler

from tests.helpers import tiny_unets
from tests.helpers.tiny_text import TOKENS, WIDTH, Letters, LettersEncoder

SMALL: dict[str, Any] = {
    **{"in_channels": 4, "out_channels": 4, "sample_size": 8, "pos_embed_max_size": 64},
    **{"num_attention_heads": 2, "attention_head_dim": 8, "axes_dims_rope": (2, 2, 4)},
    **{"num_cross_attention_heads": 2, "cross_attention_head_dim": 8},
    **dict.fromkeys(["num_layers", "num_single_layers", "num_refiner_layers"], 1),
    **dict.fromkeys(["num_mmdit_layers", "num_single_dit_layers"], 1),
    **dict.fromkeys(["joint_attention_dim", "cross_attention_dim", "pooled_projection_dim"], WIDTH),
    **dict.fromkeys(["caption_channels", "caption_projection_dim", "text_embed_dim"], WIDTH),
    **dict.fromkeys(["cap_feat_dim", "text_dim", "context_in_dim", "text_hidden_dim"], WIDTH),
}
"""Arguments of networks; each network gets those that it accepts."""

PACKED: dict[str, Any] = {"in_channels": 16, "out_channels": 16}  # 2 x 2 latents per token
LUMINA = {"hidden_size": 24, "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 8}
FLUX2 = PACKED | {"timestep_guidance_channels": 8, "axes_dims_rope": (2, 2, 2, 2)}
LAYERS = 2  # of text encoders whose hidden states are read
NO_TEXT: dict[str, Any] = {"vae": None, "tokenizer": None, "text_encoder": None}


def network(name: str, **config: Any) -> Any:
    """A small diffusers network, with changes to its configuration."""
    kind = getattr(diffusers, name)
    taken = signature(kind.__init__).parameters
    return kind(**{key: value for key, value in SMALL.items() if key in taken} | config)


def text() -> dict[str, Any]:
    """A tokenizer and a text encoder, without a VAE."""
    return {"vae": None, "tokenizer": Letters(), "text_encoder": LettersEncoder()}


def flow(pipeline: str, transformer: Any, parts: dict[str, Any] = NO_TEXT) -> Any:
    """A diffusers pipeline with the scheduler of flow models."""
    kind = getattr(diffusers, f"{pipeline}Pipeline")
    return kind(transformer=transformer, scheduler=FlowMatchEulerDiscreteScheduler(), **parts)


def of(
    pipeline: str, transformer: str, parts: Callable[[], Any] = lambda: NO_TEXT, **config: Any
) -> Callable[[], Any]:
    """A function that makes a flow pipeline with a small network."""
    return lambda: flow(pipeline, network(transformer, **config), parts())


def stable_diffusion_3() -> Any:
    wide = {"joint_attention_dim": 2 * WIDTH, "pooled_projection_dim": 2 * WIDTH}
    parts: dict[str, Any] = {"vae": None}
    for number in ("", "_2", "_3"):
        encoder = LettersEncoder(2 * WIDTH) if number == "_3" else LettersEncoder(pooled=True)
        parts |= {f"tokenizer{number}": Letters(), f"text_encoder{number}": encoder}
    return flow("StableDiffusion3", network("SD3Transformer2DModel", **wide), parts)


def two_texts() -> dict[str, Any]:
    return text() | {"tokenizer_2": Letters(), "text_encoder_2": LettersEncoder()}


def pixart(kind: Any, size: int = 8) -> Any:
    config = {"sample_size": size, "out_channels": 8, "use_additional_conditions": False}
    transformer = network("PixArtTransformer2DModel", **config)
    return kind(transformer=transformer, scheduler=diffusers.DDIMScheduler(), **NO_TEXT)


pixart_alpha = partial(pixart, diffusers.PixArtAlphaPipeline)
pixart_sigma = partial(pixart, diffusers.PixArtSigmaPipeline)


def sana(size: int = 8) -> Any:
    return flow("Sana", network("SanaTransformer2DModel", sample_size=size))


def lumina2(tokens: int = 64) -> Any:
    axes = {"axes_dim_rope": (4, 2, 2), "axes_lens": (tokens, 16, 16)}
    return flow("Lumina2", network("Lumina2Transformer2DModel", **LUMINA, **axes), text())


def hunyuan_dit(tokens: int = TOKENS, tokens_2: int = TOKENS) -> Any:
    config = {"patch_size": 2, "hidden_size": 16, "cross_attention_dim_t5": WIDTH}
    config |= {"pooled_projection_dim": 8, "text_len": tokens, "text_len_t5": tokens_2}
    return diffusers.HunyuanDiTPipeline(
        transformer=network("HunyuanDiT2DModel", **config),
        scheduler=diffusers.DDPMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
        **two_texts(),
    )


def cogvideox() -> Any:
    size = {"sample_width": 8, "sample_height": 8, "sample_frames": 9, "time_embed_dim": 8}
    transformer = network("CogVideoXTransformer3DModel", max_text_seq_length=TOKENS, **size)
    scheduler = diffusers.CogVideoXDDIMScheduler()
    return diffusers.CogVideoXPipeline(transformer=transformer, scheduler=scheduler, **NO_TEXT)


def flux2_klein() -> Any:
    """With a VAE that halves height and width: the pipeline needs one even for latent output."""
    sizes = {"latent_channels": 4, "layers_per_block": 1}
    vae = diffusers.AutoencoderKLFlux2.from_config(tiny_unets.vae().config, **sizes)
    transformer = network("Flux2Transformer2DModel", **FLUX2, guidance_embeds=False)
    return flow("Flux2Klein", transformer, NO_TEXT | {"vae": vae})


class Processor:
    """The parts of a multimodal processor that the constructor of Qwen-Image 2.1 needs."""

    class tokenizer(Letters):  # noqa: N801
        @staticmethod
        def encode(text: str) -> list[int]:
            return [0]

    @staticmethod
    def apply_chat_template(*_: Any, **__: Any) -> list[list[int]]:
        return [[0]]


def qwen_image_2_1() -> Any:
    parts = {"vae": None, "text_encoder": None, "processor": Processor()}
    return flow("QwenImage21", network("QwenImage21Transformer2DModel", **PACKED), parts)


flux = of("Flux", "FluxTransformer2DModel", two_texts, **PACKED)
chroma = of(
    "Chroma",
    "ChromaTransformer2DModel",
    text,
    **PACKED,
    **{"approximator_num_channels": 8, "approximator_hidden_dim": 8, "approximator_layers": 1},
)
aura_flow = of("AuraFlow", "AuraFlowTransformer2DModel")
lumina = of("Lumina", "LuminaNextDiT2DModel", text, **LUMINA)
cogview4 = of(
    "CogView4",
    "CogView4Transformer2DModel",
    text,
    **{"rope_axes_dim": (8, 8), "time_embed_dim": 8, "condition_dim": 4, "pos_embed_max_size": 8},
)
qwen_image = of("QwenImage", "QwenImageTransformer2DModel", in_channels=16)
z_image = of(
    "ZImage",
    "ZImageTransformer2DModel",
    **{"dim": 16, "n_layers": 1, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2},
    **{"axes_dims": [4, 2, 2], "axes_lens": [256, 32, 32]},
)
ltx = of("LTX", "LTXVideoTransformer3DModel", text)
krea2 = of(
    "Krea2",
    "Krea2Transformer2DModel",
    **{"in_channels": 16, "num_key_value_heads": 2, "intermediate_size": 16},
    **{"timestep_embed_dim": 8, "num_text_layers": LAYERS, "text_num_attention_heads": 2},
    **{"text_num_key_value_heads": 2, "text_intermediate_size": 16},
    **{"num_layerwise_text_blocks": 1, "num_refiner_text_blocks": 1},
)
flux2 = of("Flux2", "Flux2Transformer2DModel", **FLUX2)
ovis_image = of("OvisImage", "OvisImageTransformer2DModel", **PACKED)
wan = of(
    "Wan", "WanTransformer3DModel", text, **{"freq_dim": 8, "ffn_dim": 16, "attention_head_dim": 12}
)
