"""Trains the Stable Diffusion 3 of the faces demo: rectified flow on precomputed latents."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from diffusers.models.attention_processor import JointAttnProcessor2_0
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import CLIPTextModelWithProjection, T5Config, T5EncoderModel, T5TokenizerFast

from scripts.demo.faces import Faces
from scripts.demo.texts import make_tokenizer, text_config, token_ids
from scripts.demo.training import Training, save_half, train

TEXT_WIDTHS = 64, 64  # of the two text encoders
HEADS, LAYERS, HEAD = 5, 5, 32  # numbers in the transformer, and the width of a head
PATCH = 4  # height and width of a patch of latents
TOKENS = 16  # length of the longest prompt
SHIFT = 4.0  # of the times towards noise, in training and sampling
T5_TOKENS = 256  # the pipeline's T5 tokens per prompt


def train_flow(
    captioned: Faces,
    captions: Iterable[str],
    means: Tensor,
    vae: AutoencoderKL,
    training: Training,
) -> None:
    """Train a transformer and both text encoders on precomputed latents, and save the pipeline.

    Args:
        captioned: training images; `sample` gives rows of latents, and captions.
        captions: texts that the tokenizer is learnt from.
        means: (looks, channels, height, width) unscaled latents of all images.
        vae: autoencoder; its config gets the latents' shift.
    """
    batch, device = training.batch, training.device
    tokenizer = make_tokenizer(captions, training.work / "tokenizer", TOKENS)
    torch.manual_seed(1)
    encoders = [CLIPTextModelWithProjection(text_config(tokenizer, width)) for width in TEXT_WIDTHS]
    transformer = make_transformer(*means.shape[1:3])
    stock = transformer.attn_processors
    transformer.set_attn_processor(WeightedLastToken(T5_TOKENS))
    vae.register_to_config(shift_factor=round(means.mean().item(), 4))
    latents = (means - vae.config.shift_factor) * vae.config.scaling_factor

    def loss(step: int) -> Tensor:
        rows, texts = captioned.sample(batch, np.random.default_rng(step))
        clean = latents[torch.from_numpy(rows)]
        ids = token_ids(tokenizer, texts, device)
        encoded = [encoder(ids, output_hidden_states=True) for encoder in encoders]
        prompt = torch.cat([text.hidden_states[-2] for text in encoded], dim=-1)
        noise = torch.randn_like(clean)
        # logit-normal times, as in SD3, shifted like the sampler's: in small images too, the prompt
        # has most of its effect at high noise
        time = (torch.randn(batch, 1, 1, 1, device=device) + math.log(SHIFT)).sigmoid()
        velocity = transformer(
            clean.lerp(noise, time),
            F.pad(prompt, (0, 0, 0, 1)),
            torch.cat([text.text_embeds for text in encoded], dim=-1),
            1_000 * time.flatten(),
        ).sample
        return F.mse_loss(velocity.float(), noise - clean)

    train("flow", [transformer, *encoders], loss, 1.5e-3, training)
    transformer.set_attn_processor(stock)
    t5, t5_tokenizer = make_zero_t5(sum(TEXT_WIDTHS))
    pipeline = StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=SHIFT),
        vae=vae,
        text_encoder=encoders[0],
        tokenizer=tokenizer,
        text_encoder_2=encoders[1],
        tokenizer_2=tokenizer,
        text_encoder_3=t5,
        tokenizer_3=t5_tokenizer,
    )
    save_half(pipeline, training.assets / "demo-faces")


def make_zero_t5(width: int) -> tuple[T5EncoderModel, T5TokenizerFast]:
    """A T5 that returns zeros, as Stable Diffusion 3 uses them in place of a missing T5.

    `from_pretrained` needs a T5 in the folder.
    """
    tokenizer = T5TokenizerFast(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)], extra_ids=0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=8, d_ff=8, num_layers=1, num_heads=1
    )
    encoder = T5EncoderModel(config).eval()
    torch.nn.init.zeros_(encoder.encoder.final_layer_norm.weight)
    return encoder, tokenizer


def make_transformer(channels: int, size: int) -> SD3Transformer2DModel:
    """An untrained transformer with zero modulation and output, like DiT's adaLN-Zero, which makes
    the start of training faster."""
    transformer = SD3Transformer2DModel(
        sample_size=size,
        in_channels=channels,
        out_channels=channels,
        num_layers=LAYERS,
        patch_size=PATCH,
        num_attention_heads=HEADS,
        attention_head_dim=HEAD,
        caption_projection_dim=HEADS * HEAD,
        joint_attention_dim=sum(TEXT_WIDTHS),
        pooled_projection_dim=sum(TEXT_WIDTHS),
        pos_embed_max_size=size // PATCH,
        qk_norm="rms_norm",
    )
    blocks = transformer.transformer_blocks
    modulations = [norm.linear for block in blocks for norm in (block.norm1, block.norm1_context)]
    for linear in [*modulations, transformer.norm_out.linear, transformer.proj_out]:
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    return transformer


class WeightedLastToken(TorchFunctionMode):
    """SD3's joint attention in which the last context token stands for `count` equal tokens.

    Context tokens have no positions, so equal ones stay equal in every layer. Training with one
    token gives the same result as the pipeline's `count` tokens, several times as fast.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = math.log(count)
        self.attention = JointAttnProcessor2_0()

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        with self:
            return self.attention(*args, **kwargs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key, _ = args
            weights = query.new_zeros(1, key.shape[2])
            weights[:, -1] = self.weight
            kwargs |= {"attn_mask": weights}
        return func(*args, **kwargs)
