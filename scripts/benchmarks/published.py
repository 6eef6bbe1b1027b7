"""Published models and cards, as data: configurations, usual call sizes, data sheets.

A configuration lists what differs from the defaults of its class; the number of weights that
follows is in `tests/scripts/test_counted.py`, as published.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from diffusers import (
    AutoencoderKL,
    DiffusionPipeline,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
    PNDMScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from torch import nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
)

from scripts.benchmarks.guidance import SDXL

Build = Callable[[], Any]


@dataclass(frozen=True)
class Model:
    """A published text-to-image model.

    Attributes:
        name: on the Hugging Face hub.
        pipeline: of diffusers.
        network, decoder, scheduler: make its parts.
        encoders: make its text encoders, by how many tokens each is given.
        prompt: the shapes of one prompt's embeddings, by the pipeline's argument.
        size: height and width of its images.
        lists: whether the pipeline takes a list of embeddings, one for each prompt.
    """

    name: str
    pipeline: type[DiffusionPipeline]
    network: Build
    scheduler: Build
    decoder: Build
    encoders: tuple[tuple[Build, int], ...]
    prompt: dict[str, tuple[int, ...]]
    size: int = 1024
    lists: bool = False


def _clip(kind: type[nn.Module], width: int, layers: int, heads: int) -> nn.Module:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "projection_dim": width}
    depth = {"num_hidden_layers": layers, "num_attention_heads": heads}
    return kind(CLIPTextConfig(**sizes, **depth))


def _t5_xxl() -> nn.Module:
    sizes = {"d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_layers": 24, "num_heads": 64}
    return T5EncoderModel(T5Config(**sizes, feed_forward_proj="gated-gelu"))


def _qwen3_4b() -> nn.Module:
    sizes = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    return Qwen3Model(Qwen3Config(vocab_size=151936, **sizes, **heads))


_CLIP_L = partial(_clip, CLIPTextModel, 768, 12, 12)
_CLIP_L_PROJECTED = partial(_clip, CLIPTextModelWithProjection, 768, 12, 12)
_CLIP_G = partial(_clip, CLIPTextModelWithProjection, 1280, 32, 20)
_VAE = partial(
    AutoencoderKL,
    down_block_types=("DownEncoderBlock2D",) * 4,
    up_block_types=("UpDecoderBlock2D",) * 4,
    block_out_channels=(128, 256, 512, 512),
    layers_per_block=2,
)
_VAE_16 = partial(_VAE, latent_channels=16, use_quant_conv=False, use_post_quant_conv=False)
_SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
_FLUX_PROMPT = {"prompt_embeds": (512, 4096), "pooled_prompt_embeds": (768,)}

MODELS = {
    "SD 1.5": Model(
        "stable-diffusion-v1-5/stable-diffusion-v1-5",
        StableDiffusionPipeline,
        partial(
            UNet2DConditionModel, sample_size=64, cross_attention_dim=768, attention_head_dim=8
        ),
        partial(PNDMScheduler, **_SD, skip_prk_steps=True, steps_offset=1, set_alpha_to_one=False),
        _VAE,
        ((_CLIP_L, 77),),
        {"prompt_embeds": (77, 768)},
        size=512,
    ),
    "SDXL": Model(
        "stabilityai/stable-diffusion-xl-base-1.0",
        StableDiffusionXLPipeline,
        partial(UNet2DConditionModel, **SDXL),
        partial(EulerDiscreteScheduler, **_SD, timestep_spacing="leading", steps_offset=1),
        _VAE,
        ((_CLIP_L, 77), (_CLIP_G, 77)),
        {"prompt_embeds": (77, 2048), "pooled_prompt_embeds": (1280,)},
    ),
    "SD 3.5 medium": Model(
        "stabilityai/stable-diffusion-3.5-medium",
        StableDiffusion3Pipeline,
        partial(
            SD3Transformer2DModel,
            num_layers=24,
            num_attention_heads=24,
            caption_projection_dim=1536,
            pos_embed_max_size=384,
            dual_attention_layers=tuple(range(13)),
            qk_norm="rms_norm",
        ),
        partial(FlowMatchEulerDiscreteScheduler, shift=3.0),
        _VAE_16,
        ((_CLIP_L_PROJECTED, 77), (_CLIP_G, 77), (_t5_xxl, 256)),
        {"prompt_embeds": (77 + 256, 4096), "pooled_prompt_embeds": (2048,)},
    ),
    "PixArt-Σ": Model(
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS",
        PixArtSigmaPipeline,
        partial(
            PixArtTransformer2DModel,
            caption_channels=4096,
            interpolation_scale=2,
            use_additional_conditions=False,
        ),
        partial(DPMSolverMultistepScheduler, beta_schedule="linear"),
        _VAE,
        ((_t5_xxl, 300),),
        {"prompt_embeds": (300, 4096), "prompt_attention_mask": (300,)},
    ),
    "FLUX.1 dev": Model(
        "black-forest-labs/FLUX.1-dev",
        FluxPipeline,
        partial(FluxTransformer2DModel, guidance_embeds=True),
        partial(FlowMatchEulerDiscreteScheduler, shift=3.0, use_dynamic_shifting=True),
        _VAE_16,
        ((_CLIP_L, 77), (_t5_xxl, 512)),
        _FLUX_PROMPT,
    ),
    "FLUX.1 schnell": Model(
        "black-forest-labs/FLUX.1-schnell",
        FluxPipeline,
        FluxTransformer2DModel,
        FlowMatchEulerDiscreteScheduler,
        _VAE_16,
        ((_CLIP_L, 77), (_t5_xxl, 512)),
        _FLUX_PROMPT,
    ),
    "Z-Image-Turbo": Model(
        "Tongyi-MAI/Z-Image-Turbo",
        ZImagePipeline,
        ZImageTransformer2DModel,
        partial(FlowMatchEulerDiscreteScheduler, shift=3.0),
        _VAE_16,
        ((_qwen3_4b, 512),),
        {"prompt_embeds": (64, 2560)},  # a prompt of usual length: there is no padding
        lists=True,
    ),
}


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        tflops: at most, dense, in half precision with sums in single precision, in TFLOP/s.
        bandwidth: of its memory, in GB/s.
        memory: in GiB.
    """

    tflops: float
    bandwidth: float
    memory: float


CARDS = {
    # 28 and 46 SMs x 512 x 1.777 and 2.475 GHz, as NVIDIA's papers on Ampere and Ada compute it
    "RTX 3060 12 GB": Card(25.5, 360, 12),
    "RTX 4070": Card(58.3, 504, 12),
    "RTX 4090": Card(165.2, 1008, 24),
    "A100 80 GB": Card(312, 2039, 80),
    "H100 SXM": Card(989, 3350, 80),
}
"""What NVIDIA's architecture papers and data sheets say."""
