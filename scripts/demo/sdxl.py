"""A small Stable Diffusion XL, and its training."""

from typing import NamedTuple

import torch
from diffusers import AutoencoderKL, StableDiffusionXLPipeline, UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from scripts.demo.texts import make_tokenizer, text_config, token_ids
from scripts.demo.training import AnyScheduler, Captioned, Training, train_denoiser

TOKENS = 24  # length of the longest prompt


class Shape(NamedTuple):
    """The size of a model."""

    size: int  # height and width of its images in pixels, 4 times those of its latents
    widths: tuple[int, int, int]  # channels of the three levels of the UNet
    heads: tuple[int, int, int]  # attention heads of these levels
    texts: tuple[int, int]  # widths of both text encoders
    groups: int  # of the UNet's normalisation


def train_sdxl(
    vae: AutoencoderKL,
    captioned: Captioned,
    captions: list[str],
    latents: Tensor,
    scheduler: AnyScheduler,
    shape: Shape,
    training: Training,
) -> StableDiffusionXLPipeline:
    """Train the UNet and both text encoders; see `train_denoiser`.

    Args:
        captions: what the tokenizer learns its words from.
    """
    batch, device = training.batch, training.device
    tokenizer = make_tokenizer(captions, training.work / "tokenizer", TOKENS)
    torch.manual_seed(1)
    first = CLIPTextModel(text_config(tokenizer, shape.texts[0]))
    second = CLIPTextModelWithProjection(text_config(tokenizer, shape.texts[1]))
    unet = UNet2DConditionModel(
        sample_size=shape.size // 4,
        block_out_channels=shape.widths,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=shape.heads,
        cross_attention_dim=sum(shape.texts),
        norm_num_groups=shape.groups,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=32,
        projection_class_embeddings_input_dim=shape.texts[1] + 6 * 32,
    )
    # SDXL's size conditioning: original size, crop corner, target size
    size = shape.size
    time_ids = torch.tensor([size, size, 0, 0, size, size], device=device).expand(batch, 6)

    def predict(noisy: Tensor, times: Tensor, captions: list[str]) -> Tensor:
        ids = token_ids(tokenizer, captions, device)
        one = first(ids, output_hidden_states=True)
        two = second(ids, output_hidden_states=True)
        prompt = torch.cat([one.hidden_states[-2], two.hidden_states[-2]], dim=-1)
        conditions = {"text_embeds": two.text_embeds, "time_ids": time_ids}
        return unet(noisy, times, prompt, added_cond_kwargs=conditions).sample

    given = predict, captioned, latents, scheduler, training
    train_denoiser("unet", [unet, first, second], *given)
    return StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=scheduler,
        force_zeros_for_empty_prompt=False,
        add_watermarker=False,
    )
