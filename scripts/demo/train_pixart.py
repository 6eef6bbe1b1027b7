"""Train the demo PixArt-Sigma on the emoji of the demo SDXL, from scratch, with its autoencoder.

The transformer and its T5 encoder are trained together. Checkpoints are in --work; the same command
resumes.
"""

import string
from pathlib import Path

import click
import torch
from diffusers import AutoencoderKL, PixArtSigmaPipeline, PixArtTransformer2DModel
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from scripts.demo.emoji import TONES, VENDORS, Emoji, caption, load_sheets
from scripts.demo.held_out import save_measured
from scripts.demo.training import (
    Training,
    encode_all,
    noise_schedule,
    train,
    training_options,
    velocity_loss,
)

TOKENS = 32  # longest prompt
SAMPLING = {  # of the images that the model card counts
    "num_inference_steps": 16,
    "guidance_scale": 3.0,
    "use_resolution_binning": False,
    "max_sequence_length": TOKENS,
}


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pictures", type=click.Path(path_type=Path), default="assets/demo-pictures")
@click.option("--sdxl", type=click.Path(path_type=Path), default="assets/demo-sdxl")
@training_options("--steps", 4_200, batch=32, work="out/pixart")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-pixart")
@click.option("--probe", type=click.Path(path_type=Path), default="assets/demo-probe")
@click.option("--prompts", type=click.Path(path_type=Path), default="assets/prompts")
@click.option("--machine", default="one CPU core", help="What --device is, for the model card.")
def main(
    pictures: Path,
    sdxl: Path,
    training: Training,
    output: Path,
    probe: Path,
    prompts: Path,
    machine: str,
) -> None:
    emoji = load_sheets(pictures)
    pipeline = make_pipeline(emoji, AutoencoderKL.from_pretrained(sdxl, subfolder="vae"))
    seconds = train_pixart(pipeline, emoji, training)
    save_measured(
        pipeline,
        output,
        SAMPLING,
        prompts,
        probe,
        training,
        card="demo-pixart",
        images=emoji,
        seconds=seconds,
        machine=machine,
    )


def make_pipeline(
    emoji: Emoji, vae: AutoencoderKL, layers: int = 8, heads: int = 6, text_width: int = 128
) -> PixArtSigmaPipeline:
    """An untrained PixArt-Sigma: patches of 2x2 latents, heads of width 24."""
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
    """As PixArt does: every block begins without text, and the network with zeros."""
    for module in transformer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.normal_(transformer.adaln_single.linear.weight, std=0.02)
    for block in transformer.transformer_blocks:
        nn.init.zeros_(block.attn2.to_out[0].weight)
    nn.init.zeros_(transformer.proj_out.weight)


def make_tokenizer(emoji: Emoji) -> T5Tokenizer:
    """A T5 tokenizer with a piece for each word of the captions, and characters for other words.

    PixArt turns prompts into lower case itself.
    """
    texts = (caption(c, v, t) for c in emoji.concepts for v in VENDORS for t in TONES)
    words = sorted({f"▁{word.strip(',')}" for text in texts for word in text.split()})
    pieces = ["<pad>", "</s>", "<unk>", *words, "▁", *string.printable.strip()]
    # the best segmentation has the highest sum of scores: that of the fewest pieces
    return T5Tokenizer(
        vocab=[(piece, -1.0) for piece in pieces], extra_ids=0, model_max_length=TOKENS
    )


def train_pixart(pipeline: PixArtSigmaPipeline, emoji: Emoji, training: Training) -> float:
    """Train the transformer and the text encoder; the autoencoder stays as it is. The seconds."""
    tokenizer, text_encoder = pipeline.tokenizer, pipeline.text_encoder
    transformer, device = pipeline.transformer, training.device

    def predict(noisy: Tensor, times: Tensor, captions: list[str]) -> Tensor:
        tokens = tokenizer(captions, padding=True, return_tensors="pt").to(device)
        prompt = text_encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state
        return transformer(
            noisy, prompt, times, encoder_attention_mask=tokens.attention_mask
        ).sample

    transformer.set_default_attn_processor()  # on CPUs, half the time of fused attention's gradient
    latents = encode_all(pipeline.vae.to(device), emoji, device)
    loss = velocity_loss(predict, emoji, latents, training.batch)
    return train("pixart", [transformer, text_encoder], loss, 1e-3, training)


if __name__ == "__main__":
    main()
