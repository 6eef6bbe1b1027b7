"""Train the demo PixArt-Sigma from scratch, on the emoji and with the autoencoder of the demo SDXL.

The transformer and its T5 encoder are trained together. Checkpoints are written to --work; the same
command resumes.
"""

import string

import click
import torch
from diffusers import AutoencoderKL, PixArtSigmaPipeline, PixArtTransformer2DModel
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from scripts.demo.emoji import Emoji, load_sheets
from scripts.demo.training import (
    Training,
    latents_of,
    noise_schedule,
    save_half,
    train_denoiser,
    training_options,
)

TOKENS = 32  # length of the longest prompt


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(4_200, batch=32, work="out/pixart")
def main(training: Training) -> None:
    emoji = load_sheets(training.assets / "demo-pictures")
    vae = AutoencoderKL.from_pretrained(training.assets / "demo-sdxl", subfolder="vae")
    pipeline = make_pipeline(emoji, vae)
    train_pixart(pipeline, emoji, training)
    save_half(pipeline, training.assets / "demo-pixart")


def make_pipeline(
    emoji: Emoji, vae: AutoencoderKL, layers: int = 8, heads: int = 6, text_width: int = 128
) -> PixArtSigmaPipeline:
    """An untrained PixArt-Sigma with patches of 2x2 latents and attention heads of width 24."""
    tokenizer = make_tokenizer(emoji)
    torch.manual_seed(0)
    text_encoder = T5EncoderModel(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=text_width,
            d_kv=32,
            d_ff=2 * text_width,
            num_layers=2,
            num_heads=text_width // 32,
            dropout_rate=0.0,
            feed_forward_proj="gated-gelu",
        )
    )
    transformer = PixArtTransformer2DModel(
        num_attention_heads=heads,
        attention_head_dim=24,
        cross_attention_dim=24 * heads,
        caption_channels=text_width,
        num_layers=layers,
        out_channels=4,
        sample_size=16,
    )
    initialise(transformer)
    return PixArtSigmaPipeline(tokenizer, text_encoder, vae, transformer, noise_schedule())


def initialise(transformer: PixArtTransformer2DModel) -> None:
    """Initialise as PixArt does: cross-attention and the network's output begin at zero."""
    for module in transformer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.normal_(transformer.adaln_single.linear.weight, std=0.02)
    for block in transformer.transformer_blocks:
        nn.init.zeros_(block.attn2.to_out[0].weight)
    nn.init.zeros_(transformer.proj_out.weight)


def make_tokenizer(emoji: Emoji) -> T5Tokenizer:
    """A T5 tokenizer with a token for each word of the captions, and characters for other words.

    PixArt itself converts prompts to lower case.
    """
    words = sorted({f"▁{word.strip(',')}" for text in emoji.captions for word in text.split()})
    pieces = ["<pad>", "</s>", "<unk>", *words, "▁", *string.printable.strip()]
    # equal scores: the segmentation with the highest sum is the one with the fewest pieces
    return T5Tokenizer(
        vocab=[(piece, -1.0) for piece in pieces], extra_ids=0, model_max_length=TOKENS
    )


def train_pixart(pipeline: PixArtSigmaPipeline, emoji: Emoji, training: Training) -> None:
    """Train the transformer and the text encoder."""
    tokenizer, text_encoder = pipeline.tokenizer, pipeline.text_encoder
    transformer, device = pipeline.transformer, training.device

    def predict(noisy: Tensor, times: Tensor, captions: list[str]) -> Tensor:
        tokens = tokenizer(captions, padding=True, return_tensors="pt").to(device)
        prompt = text_encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state
        return transformer(
            noisy, prompt, times, encoder_attention_mask=tokens.attention_mask
        ).sample

    transformer.set_default_attn_processor()  # on CPUs, half the time of fused gradients
    modules = [transformer, text_encoder]
    latents = latents_of(pipeline.vae, emoji.pixels, device)
    given = predict, emoji, latents, noise_schedule()
    train_denoiser("pixart", modules, *given, training)


if __name__ == "__main__":
    main()
