"""Train the demo SDXL and its probe on emoji artwork, from scratch, and save them under assets/.

Stages, each resumable: the probe, the autoencoder, the UNet with both text encoders. Checkpoints
are in --work; the same command resumes.
"""

from pathlib import Path

import click
import numpy as np
import torch
from diffusers import AutoencoderKL, StableDiffusionXLPipeline, UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextModel, CLIPTextModelWithProjection

from scripts.demo.cards import write_card
from scripts.demo.emoji import (
    CAPTION,
    SIZE,
    TONE_SHARES,
    TONES,
    VENDOR_SHARES,
    VENDORS,
    Emoji,
    caption,
    fetch,
    load,
)
from scripts.demo.probing import TRAINING_FEATURES, make_probe, save_training_features
from scripts.demo.texts import make_tokenizer, text_config
from scripts.demo.training import (
    Training,
    encode_all,
    noise_schedule,
    save_half,
    train,
    train_vae,
    training_options,
    velocity_loss,
)
from vendi_guidance.features.probe import Probe

TOKENS = 24  # longest prompt


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--concepts", default="default", help="default (64), people, or emoji short names.")
@click.option("--data", type=click.Path(path_type=Path), default="out/emoji", help="npm packages.")
@training_options("--unet-steps", 4_000, batch=64, work="out/train")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--vae-steps", type=click.IntRange(1), default=1_500)
@click.option("--probe-steps", type=click.IntRange(1), default=1_200)
@click.option("--stage", type=click.Choice(["all", "diffusion", "probe"]), default="all")
def main(
    concepts: str,
    data: Path,
    training: Training,
    output: Path,
    vae_steps: int,
    probe_steps: int,
    stage: str,
) -> None:
    fetch(data)
    emoji = load(data, concepts)
    if stage in ("all", "probe"):
        make_emoji_probe(output / "demo-probe", emoji, training._replace(steps=probe_steps))
    if stage in ("all", "diffusion"):
        images = emoji.pixels.flatten(0, 2)
        of_vae = training._replace(steps=vae_steps, batch=training.batch // 2)
        vae = train_vae(images, (16, 32, 64), of_vae)
        pipeline = train_diffusion(emoji, vae, training)
        folder = output / "demo-sdxl"
        save_half(pipeline, folder)
        write_card(folder, folder.name, images=emoji, of_vae=of_vae, training=training)


def train_diffusion(
    emoji: Emoji, vae: AutoencoderKL, training: Training
) -> StableDiffusionXLPipeline:
    """Velocity prediction on precomputed latents; both text encoders are trained too."""
    batch, device = training.batch, training.device
    captions = (caption(c, v, t) for c in emoji.concepts for v in VENDORS for t in TONES)
    tokenizer = make_tokenizer(captions, training.work / "tokenizer", TOKENS)
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
    # SDXL's conditioning on sizes: original size, crop corner, target size
    time_ids = torch.tensor([SIZE, SIZE, 0, 0, SIZE, SIZE], device=device).expand(batch, 6)

    def predict(noisy: Tensor, times: Tensor, captions: list[str]) -> Tensor:
        tokens = tokenizer(
            captions, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="pt"
        )
        ids = tokens.input_ids.to(device)
        one = first(ids, output_hidden_states=True)
        two = second(ids, output_hidden_states=True)
        prompt = torch.cat([one.hidden_states[-2], two.hidden_states[-2]], dim=-1)
        conditions = {"text_embeds": two.text_embeds, "time_ids": time_ids}
        return unet(noisy, times, prompt, added_cond_kwargs=conditions).sample

    loss = velocity_loss(predict, emoji, encode_all(vae, emoji, device), batch)
    train("unet", [unet, first, second], loss, 1e-3, training)
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


def make_emoji_probe(folder: Path, emoji: Emoji, training: Training) -> None:
    """A classifier of concept, vendor and tone, with its features of the training images."""
    torch.manual_seed(2)
    probe = Probe(emoji.concepts, [("vendor", VENDORS), ("tone", TONES)], CAPTION)
    looks = torch.tensor(list(np.ndindex(*emoji.pixels.shape[:3])))
    known, mix = (emoji.pixels.flatten(0, 2), looks), [(1.0, [VENDOR_SHARES, TONE_SHARES])]
    make_probe(folder, probe, known, {"held-out accuracy": None}, mix, training)
    save_training_features(probe.float().cpu(), emoji, folder / TRAINING_FEATURES)


if __name__ == "__main__":
    main()
