"""Train the demo SDXL and its probe on emoji artwork, from scratch, and save them under assets/.

The stages are the probe, the autoencoder, and the UNet with both text encoders. Checkpoints are
written to --work; the same command resumes.
"""

from pathlib import Path

import click
import numpy as np
import torch
from diffusers import AutoencoderKL, StableDiffusionXLPipeline, UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from scripts.demo import emoji
from scripts.demo.cards import write_card
from scripts.demo.emoji import SIZE, Emoji
from scripts.demo.probing import TRAINING_FEATURES, make_probe, save_training_features
from scripts.demo.texts import make_tokenizer, text_config, token_ids
from scripts.demo.training import (
    Training,
    noise_schedule,
    save_half,
    train_vae,
    train_velocity,
    training_options,
)
from vendi_guidance.features.probe import Probe

TOKENS = 24  # length of the longest prompt


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(4_000, batch=64, work="out/train", vae_steps=1_500, probe_steps=1_200)
def main(training: Training) -> None:
    shown = emoji.load_sheets(training.assets / "demo-pictures")
    make_emoji_probe(training.assets / "demo-probe", shown, training.of_probe)
    vae = train_vae(shown.pixels.flatten(0, 2), (16, 32, 64), training.of_vae)
    folder = training.assets / "demo-sdxl"
    save_half(train_diffusion(shown, vae, training), folder)
    write_card(folder, images=shown, training=training)


def train_diffusion(
    shown: Emoji, vae: AutoencoderKL, training: Training
) -> StableDiffusionXLPipeline:
    """Train the UNet and both text encoders on precomputed latents, by velocity prediction."""
    batch, device = training.batch, training.device
    tokenizer = make_tokenizer(shown.captions, training.work / "tokenizer", TOKENS)
    torch.manual_seed(1)
    first = CLIPTextModel(text_config(tokenizer, 64))
    second = CLIPTextModelWithProjection(text_config(tokenizer, 128))
    unet = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(64, 128, 128),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4, 4),
        cross_attention_dim=64 + 128,
        norm_num_groups=16,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=32,
        projection_class_embeddings_input_dim=128 + 6 * 32,
    )
    # SDXL's size conditioning: original size, crop corner, target size
    time_ids = torch.tensor([SIZE, SIZE, 0, 0, SIZE, SIZE], device=device).expand(batch, 6)

    def predict(noisy: Tensor, times: Tensor, captions: list[str]) -> Tensor:
        ids = token_ids(tokenizer, captions, device)
        one = first(ids, output_hidden_states=True)
        two = second(ids, output_hidden_states=True)
        prompt = torch.cat([one.hidden_states[-2], two.hidden_states[-2]], dim=-1)
        conditions = {"text_embeds": two.text_embeds, "time_ids": time_ids}
        return unet(noisy, times, prompt, added_cond_kwargs=conditions).sample

    train_velocity("unet", [unet, first, second], predict, shown, vae, training)
    return StableDiffusionXLPipeline(
        vae=vae,
        text_encoder=first,
        text_encoder_2=second,
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=noise_schedule(),
        force_zeros_for_empty_prompt=False,
        add_watermarker=False,
    )


def make_emoji_probe(folder: Path, shown: Emoji, training: Training) -> None:
    """Train a classifier of concept, vendor and tone, and save its training-image features."""
    torch.manual_seed(2)
    attributes = [("vendor", emoji.VENDORS), ("tone", emoji.TONES)]
    probe = Probe(shown.concepts, attributes, emoji.CAPTION)
    looks = torch.tensor(list(np.ndindex(*shown.pixels.shape[:3])))
    known = shown.pixels.flatten(0, 2), looks
    mix = [(1.0, [emoji.VENDOR_SHARES, emoji.TONE_SHARES])]
    make_probe(folder, probe, known, {"held-out accuracy": None}, mix, training)
    save_training_features(probe.float().cpu(), shown, folder / TRAINING_FEATURES)


if __name__ == "__main__":
    main()
