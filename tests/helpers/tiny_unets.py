"""Tiny UNet pipelines with random weights: Stable Diffusion 1.5, XL and their variants."""

from functools import partial
from typing import Any

import diffusers
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from diffusers.pipelines.kolors.pipeline_kolors import KolorsPipeline  # no sentencepiece needed

from tests.helpers.tiny_text import WIDTH, Letters, LettersEncoder

BLOCKS: dict[str, Any] = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "attention_head_dim": (2, 2),
    "cross_attention_dim": WIDTH,
    "norm_num_groups": 4,
}
UNCHECKED: dict[str, Any] = {"safety_checker": None, "feature_extractor": None}
XL: dict[str, Any] = {
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": WIDTH + 6 * 8,
}


def stable_diffusion() -> Any:
    return diffusers.StableDiffusionPipeline(vae=None, unet=unet(), **UNCHECKED, **without_text(1))


def instruct_pix2pix() -> Any:
    return diffusers.StableDiffusionInstructPix2PixPipeline(
        vae=vae(),
        unet=unet(in_channels=8),
        requires_safety_checker=False,
        **UNCHECKED,
        **without_text(1),
    )


def animate_diff() -> Any:
    adapter = diffusers.MotionAdapter(
        block_out_channels=(8, 16),
        motion_layers_per_block=1,
        motion_num_attention_heads=2,
        motion_norm_num_groups=4,
    )
    parts = without_text(1) | {"motion_adapter": adapter}
    return diffusers.AnimateDiffPipeline(vae=None, unet=unet(), **parts)


def stable_diffusion_xl(kind: str = "", reads_images: bool = False, **parts: Any) -> Any:
    pipeline = getattr(diffusers, f"StableDiffusionXL{kind}Pipeline")
    made = {"vae": vae() if reads_images else None, "unet": unet(**XL)}
    return pipeline(**made, **without_text(2), **parts)


stable_diffusion_xl_img2img = partial(stable_diffusion_xl, "Img2Img", True)
stable_diffusion_xl_inpaint = partial(stable_diffusion_xl, "Inpaint", True)
stable_diffusion_xl_pag = partial(stable_diffusion_xl, "PAG", pag_applied_layers="mid")


def stable_diffusion_xl_controlnet() -> Any:
    channels = {"conditioning_embedding_out_channels": (4, 8)}
    controlnet = diffusers.ControlNetModel(**channels, **BLOCKS, **XL)
    return stable_diffusion_xl("ControlNet", True, controlnet=controlnet)


def kandinsky_2_2() -> Any:
    return diffusers.KandinskyV22Pipeline(
        unet=UNet2DConditionModel(
            out_channels=8,
            block_out_channels=(8, 16),
            layers_per_block=1,
            down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
            mid_block_type="UNetMidBlock2DSimpleCrossAttn",
            up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
            attention_head_dim=2,
            norm_num_groups=4,
            cross_attention_dim=8,
            encoder_hid_dim=WIDTH,
            encoder_hid_dim_type="image_proj",
            addition_embed_type="image",
            resnet_time_scale_shift="scale_shift",
        ),
        scheduler=scheduler(),
        movq=vae(),
    )


def kolors() -> Any:
    return KolorsPipeline(
        vae=None,
        unet=unet(**XL),
        tokenizer=Letters(padding_side="left"),
        text_encoder=LettersEncoder(tokens_first=True),
        scheduler=scheduler(),
    )


def unet(**more: Any) -> UNet2DConditionModel:
    up = ("CrossAttnUpBlock2D", "UpBlock2D")
    return UNet2DConditionModel(sample_size=8, up_block_types=up, **BLOCKS | more)


def vae(blocks: tuple[int, ...] = (8, 8), norm_num_groups: int = 4, **more: Any) -> AutoencoderKL:
    """A VAE; two blocks halve height and width."""
    return AutoencoderKL(
        block_out_channels=blocks,
        down_block_types=("DownEncoderBlock2D",) * len(blocks),
        up_block_types=("UpDecoderBlock2D",) * len(blocks),
        norm_num_groups=norm_num_groups,
        sample_size=16,
        mid_block_add_attention=False,
        force_upcast=False,
        **more,
    )


def scheduler() -> DDIMScheduler:
    return DDIMScheduler(beta_schedule="scaled_linear", clip_sample=False, steps_offset=1)


def without_text(encoders: int) -> dict[str, Any]:
    """A scheduler, and None for the tokenizers and text encoders, of which there are 1 or 2."""
    names = ["tokenizer", "text_encoder"] + ["tokenizer_2", "text_encoder_2"] * (encoders - 1)
    return dict.fromkeys(names) | {"scheduler": scheduler()}
