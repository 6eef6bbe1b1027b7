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
from scripts.demo.model_card import write_model_card, write_probe_card
from scripts.demo.probing import (
    TRAINING_FEATURES,
    accuracy,
    save_training_features,
    split_tenth,
    train_probe,
    write_mix,
)
from scripts.demo.texts import make_tokenizer, text_config
from scripts.demo.training import (
    Training,
    dtype_option,
    encode_all,
    machine,
    noise_schedule,
    save_half,
    train,
    train_vae,
    velocity_loss,
)
from vendi_guidance.features.probe import Probe

TOKENS = 24  # longest prompt


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--concepts", default="default", help="default (64), people, or emoji short names.")
@click.option("--data", type=click.Path(path_type=Path), default="out/emoji", help="npm packages.")
@click.option("--work", type=click.Path(path_type=Path), default="out/train", help="Checkpoints.")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--vae-steps", type=click.IntRange(1), default=1_500)
@click.option("--unet-steps", type=click.IntRange(1), default=4_000)
@click.option("--probe-steps", type=click.IntRange(1), default=1_200)
@click.option("--batch-size", type=click.IntRange(1), default=64)
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", is_eager=True)
@dtype_option
@click.option("--stage", type=click.Choice(["all", "diffusion", "probe"]), default="all")
def main(
    concepts: str,
    data: Path,
    work: Path,
    output: Path,
    vae_steps: int,
    unet_steps: int,
    probe_steps: int,
    batch_size: int,
    device: str,
    dtype: torch.dtype,
    stage: str,
) -> None:
    fetch(data)
    emoji = load(data, concepts)
    work.mkdir(parents=True, exist_ok=True)
    training = Training(work, unet_steps, batch_size, device, dtype)
    if stage in ("all", "probe"):
        probe, right = train_emoji_probe(emoji, training._replace(steps=probe_steps))
        probe.half().save_pretrained(output / "demo-probe")
        save_training_features(
            probe.float().cpu(), emoji, output / "demo-probe" / TRAINING_FEATURES
        )
        write_mix(output / "demo-probe", probe.attributes, [(1.0, [VENDOR_SHARES, TONE_SHARES])])
        write_probe_card(output / "demo-probe", emoji, right, probe_steps, machine(device, dtype))
    if stage in ("all", "diffusion"):
        images = emoji.pixels.flatten(0, 2)
        of_vae = training._replace(steps=vae_steps, batch=batch_size // 2)
        vae = train_vae(images, (16, 32, 64), of_vae)
        pipeline = train_diffusion(emoji, vae, training)
        save_half(pipeline, output / "demo-sdxl")
        steps = vae_steps, unet_steps
        write_model_card(output / "demo-sdxl", emoji, *steps, batch_size, machine(device, dtype))


# The UNet and the text encoders ---------------------------------------------------------------


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


# The probe ------------------------------------------------------------------------------------


def train_emoji_probe(emoji: Emoji, training: Training) -> tuple[Probe, dict[str, float]]:
    """A classifier of concept, vendor and tone; accuracy on a tenth of the images, held out."""
    torch.manual_seed(2)
    probe = Probe(emoji.concepts, [("vendor", VENDORS), ("tone", TONES)], CAPTION)
    images = emoji.pixels.flatten(0, 2)
    looks = torch.tensor(list(np.ndindex(*emoji.pixels.shape[:3])))
    held_out, kept = split_tenth(len(images))
    train_probe(probe, images[kept], looks[kept], training)
    return probe, accuracy(probe, images[held_out], looks[held_out], training.device)


if __name__ == "__main__":
    main()
