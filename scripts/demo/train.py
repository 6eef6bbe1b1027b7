"""Train the demo SDXL and its probe on emoji artwork, from scratch, and save them under assets/.

Stages, each resumable: the probe, the autoencoder, the UNet with both text encoders. Checkpoints
are in --work; the same command resumes.
"""

import json
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

from scripts.demo.emoji import CAPTION, SIZE, TONES, VENDORS, Emoji, caption, fetch, load
from scripts.demo.model_card import write_model_card, write_probe_card
from scripts.demo.training import encode, save_half, to_model_range, train
from vendi_guidance.features.probe import Probe
from vendi_guidance.storage.tensors import save_tensors

TOKENS = 24  # longest prompt
TRAINING_FEATURES = "training_features.safetensors"


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--concepts", default="default", help="default (64), people, or emoji short names.")
@click.option("--data", type=click.Path(path_type=Path), default="out/emoji", help="npm packages.")
@click.option("--work", type=click.Path(path_type=Path), default="out/train", help="Checkpoints.")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--vae-steps", type=click.IntRange(1), default=1_500)
@click.option("--unet-steps", type=click.IntRange(1), default=4_000)
@click.option("--probe-steps", type=click.IntRange(1), default=1_200)
@click.option("--batch-size", type=click.IntRange(1), default=64)
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu")
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
    stage: str,
) -> None:
    fetch(data)
    emoji = load(data, concepts)
    work.mkdir(parents=True, exist_ok=True)
    if stage in ("all", "probe"):
        probe, accuracy = train_probe(emoji, work, probe_steps, batch_size, device)
        probe.save_pretrained(output / "demo-probe")
        save_training_features(probe.cpu(), emoji, output / "demo-probe" / TRAINING_FEATURES)
        write_probe_card(output / "demo-probe", emoji, accuracy, probe_steps, device)
    if stage in ("all", "diffusion"):
        vae = train_vae(emoji, work, vae_steps, batch_size // 2, device)
        pipeline = train_diffusion(emoji, vae, work, unet_steps, batch_size, device)
        save_half(pipeline, output / "demo-sdxl")
        write_model_card(output / "demo-sdxl", emoji, vae_steps, unet_steps, batch_size, device)


# The autoencoder ------------------------------------------------------------------------------


def train_vae(emoji: Emoji, work: Path, steps: int, batch: int, device: str) -> AutoencoderKL:
    """A 0.65M-parameter AutoencoderKL: 64x64 pixels to 4x16x16 latents of unit deviation."""
    torch.manual_seed(0)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(16, 32, 64),
        norm_num_groups=8,
        sample_size=SIZE,
        mid_block_add_attention=False,
        force_upcast=False,
    )
    pictures = emoji.pixels.flatten(0, 2)

    def loss(step: int) -> Tensor:
        chosen = torch.randint(len(pictures), (batch,))
        x = to_model_range(pictures[chosen].to(device))
        posterior = vae.encode(x).latent_dist
        y = vae.decode(posterior.sample()).sample.float()
        # edges carry most of a 64-pixel picture, so differences of neighbours count as well
        edges = sum(F.l1_loss(y.diff(dim=axis), x.diff(dim=axis)) for axis in (2, 3))
        return F.l1_loss(y, x) + F.mse_loss(y, x) + edges + 1e-6 * posterior.kl().mean()

    train("vae", [vae], loss, work, steps, 2e-3, device)
    latents = encode(vae, pictures, device)
    vae.register_to_config(scaling_factor=round(1 / latents.std().item(), 4))
    return vae


# The UNet and the text encoders ---------------------------------------------------------------


def train_diffusion(
    emoji: Emoji, vae: AutoencoderKL, work: Path, steps: int, batch: int, device: str
) -> StableDiffusionXLPipeline:
    """Velocity prediction on precomputed latents; both text encoders are trained too."""
    tokenizer = make_tokenizer(emoji, work / "tokenizer")
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
    # clip_sample: latents are not in [-1, 1]; clipping would ruin the pictures
    scheduler = DDIMScheduler(
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
    )
    latents = encode(vae, emoji.pixels.flatten(0, 2), device) * vae.config.scaling_factor
    latents = latents.unflatten(0, emoji.pixels.shape[:3])
    # SDXL's conditioning on sizes: original size, crop corner, target size
    time_ids = torch.tensor([SIZE, SIZE, 0, 0, SIZE, SIZE], device=device).expand(batch, 6)

    def loss(step: int) -> Tensor:
        looks, captions = emoji.draw(batch, np.random.default_rng(step))
        clean = latents[tuple(torch.from_numpy(looks).T)]
        tokens = tokenizer(
            captions, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="pt"
        )
        ids = tokens.input_ids.to(device)
        one = first(ids, output_hidden_states=True)
        two = second(ids, output_hidden_states=True)
        prompt = torch.cat([one.hidden_states[-2], two.hidden_states[-2]], dim=-1)
        noise = torch.randn_like(clean)
        times = torch.randint(scheduler.config.num_train_timesteps, (batch,), device=device)
        velocity = unet(
            scheduler.add_noise(clean, noise, times),
            times,
            prompt,
            added_cond_kwargs={"text_embeds": two.text_embeds, "time_ids": time_ids},
        ).sample
        return F.mse_loss(velocity.float(), scheduler.get_velocity(clean, noise, times))

    train("unet", [unet, first, second], loss, work, steps, 1e-3, device)
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


def make_tokenizer(emoji: Emoji, folder: Path) -> CLIPTokenizer:
    """A CLIP tokenizer whose merges are learnt from the captions themselves."""
    start, end = "<|startoftext|>", "<|endoftext|>"
    words = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2_000, min_frequency=1, initial_alphabet=alphabet, end_of_word_suffix="</w>"
    )
    texts = (caption(c, v, t) for c in emoji.concepts for v in VENDORS for t in TONES)
    words.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    words.model.save(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    # a byte may also end a word: any text must have tokens
    for token in [f"{byte}</w>" for byte in alphabet] + [start, end]:
        vocabulary.setdefault(token, len(vocabulary))
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=TOKENS
    )


def text_config(tokenizer: CLIPTokenizer, width: int) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=2,
        num_attention_heads=width // 32,
        max_position_embeddings=TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


# The probe ------------------------------------------------------------------------------------


def train_probe(
    emoji: Emoji, work: Path, steps: int, batch: int, device: str
) -> tuple[Probe, dict[str, float]]:
    """A classifier of concept, vendor and tone; accuracy on a tenth of the pictures, held out."""
    torch.manual_seed(2)
    probe = Probe(emoji.concepts, [("vendor", VENDORS), ("tone", TONES)], CAPTION)
    pictures = emoji.pixels.flatten(0, 2)
    looks = torch.tensor(list(np.ndindex(*emoji.pixels.shape[:3])))
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(3))
    held_out, kept = order[: len(order) // 10], order[len(order) // 10 :]

    def loss(step: int) -> Tensor:
        chosen = kept[torch.randint(len(kept), (batch,))]
        scores = probe(augment(to_model_range(pictures[chosen].to(device))))
        targets = looks[chosen].to(device).T
        losses = [F.cross_entropy(s, t) for s, t in zip(scores, targets, strict=True)]
        return torch.stack(losses).sum()

    train("probe", [probe], loss, work, steps, 2e-3, device)
    with torch.no_grad():
        scores = probe(to_model_range(pictures[held_out].to(device)))
    right = [
        (score.argmax(1).cpu() == target).float().mean().item()
        for score, target in zip(scores, looks[held_out].T, strict=True)
    ]
    return probe, dict(zip(("concept", "vendor", "tone"), right, strict=True))


def save_training_features(probe: Probe, emoji: Emoji, file: Path) -> None:
    """Write the probe's features of all training pictures, in the order of `Emoji.images`.

    They are (n, 128), under the key "features": what generated pictures are compared with.
    """
    save_tensors(file, {"features": probe.embed(emoji.images(emoji.concepts))}, {})


def augment(x: Tensor) -> Tensor:
    """Random shift, scale, blur, noise and slight colour change, like a generator's faults."""
    n = len(x)
    scale = 1 + 0.1 * (2 * torch.rand(n) - 1)
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = scale
    theta[:, :, 2] = 0.12 * (2 * torch.rand(n, 2) - 1)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False).to(x)
    x = 1 - F.grid_sample(1 - x, grid, align_corners=False)  # what moves in is white
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    amount = torch.rand(n, 1, 1, 1).to(x)
    x = x + amount * (blurred - x) + 0.15 * torch.rand(n, 1, 1, 1).to(x) * torch.randn_like(x)
    return x * (1 + 0.05 * (2 * torch.rand(n, 3, 1, 1).to(x) - 1))


if __name__ == "__main__":
    main()
