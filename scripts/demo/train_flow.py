"""Train the flow demo, a tiny Stable Diffusion 3 of letters, and its probe, from scratch.

Stages, each resumable: the probe, the autoencoder, the transformer with both text encoders.
Checkpoints are in --work; the same command resumes.
"""

import math
from itertools import product
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from diffusers.models.attention_processor import Attention
from torch import Tensor
from transformers import CLIPTextModelWithProjection, T5Config, T5EncoderModel, T5TokenizerFast

from scripts.demo.held_out import Measured, measure
from scripts.demo.letters import ATTRIBUTES, CAPTION, CONCEPTS, Letters, caption, fetch, load
from scripts.demo.letters_card import write_flow_card, write_letters_probe_card
from scripts.demo.probing import accuracy, split_tenth, train_probe
from scripts.demo.texts import make_tokenizer, text_config
from scripts.demo.training import (
    Training,
    dtype_option,
    encode,
    machine,
    save_half,
    train,
    train_vae,
)
from vendi_guidance.features.probe import Probe

VAE_WIDTHS = 8, 16, 32
TOKENS = 12  # longest prompt
TEXT_WIDTHS = 64, 64  # of the text encoders
HEADS, LAYERS = 4, 4  # of the transformer; a head is 32 wide
SHIFT = 3.0  # of the times towards noise, in training and sampling
T5_TOKENS = 256  # of a prompt, as the pipeline has them
CFG, SAMPLING_STEPS = 4.0, 16  # of the images that the model card counts


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@click.option("--work", type=click.Path(path_type=Path), default="out/flow", help="Checkpoints.")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--prompts", type=click.Path(path_type=Path), default="assets/prompts")
@click.option("--vae-steps", type=click.IntRange(1), default=900)
@click.option("--flow-steps", type=click.IntRange(1), default=9_000)
@click.option("--probe-steps", type=click.IntRange(1), default=900)
@click.option("--batch-size", type=click.IntRange(1), default=32)
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", is_eager=True)
@dtype_option
@click.option("--stage", type=click.Choice(["all", "diffusion", "probe"]), default="all")
def main(
    data: Path,
    work: Path,
    output: Path,
    prompts: Path,
    vae_steps: int,
    flow_steps: int,
    probe_steps: int,
    batch_size: int,
    device: str,
    dtype: torch.dtype,
    stage: str,
) -> None:
    fetch(data)
    letters = load(data)
    work.mkdir(parents=True, exist_ok=True)
    training = Training(work, flow_steps, batch_size, device, dtype)
    judge = output / "demo-letters-probe"
    if stage in ("all", "probe"):
        of_probe = training._replace(steps=probe_steps, batch=2 * batch_size)
        probe, tests = train_letters_probe(letters, of_probe)
        probe.half().save_pretrained(judge)
        write_letters_probe_card(judge, tests, probe_steps, 2 * batch_size, machine(device, dtype))

    if stage in ("all", "diffusion"):
        of_vae = training._replace(steps=vae_steps, batch=batch_size // 2)
        vae = train_vae(letters.images, VAE_WIDTHS, of_vae)
        shown = letters.where(~letters.held_out)
        pipeline = train_flow(shown, vae, training)
        save_half(pipeline, output / "demo-flow")
        measured = measure_flow(output / "demo-flow", prompts, judge, device, dtype)
        steps = vae_steps, flow_steps
        write_flow_card(
            output / "demo-flow", shown, measured, *steps, batch_size, machine(device, dtype)
        )


def measure_flow(
    folder: Path, prompts: Path, probe: Path, device: str, dtype: torch.dtype
) -> dict[str, Measured]:
    """What the saved pipeline draws."""
    pipeline = StableDiffusion3Pipeline.from_pretrained(folder, dtype=dtype).to(device)
    sampling = {"num_inference_steps": SAMPLING_STEPS, "guidance_scale": CFG}
    measured = measure(
        pipeline, sampling, prompts, probe, files=("letters.txt", "letters-named.txt")
    )
    return {f"{SAMPLING_STEPS} steps, CFG scale {CFG:g}": measured}


def train_flow(
    letters: Letters, vae: AutoencoderKL, training: Training
) -> StableDiffusion3Pipeline:
    """Rectified flow on precomputed latents; both text encoders are trained too."""
    batch, device = training.batch, training.device
    captions = (caption(*words) for words in product(CONCEPTS, *ATTRIBUTES.values()))
    tokenizer = make_tokenizer(captions, training.work / "tokenizer", TOKENS)
    torch.manual_seed(1)
    encoders = [CLIPTextModelWithProjection(text_config(tokenizer, width)) for width in TEXT_WIDTHS]
    transformer = make_transformer(vae.config.latent_channels)
    stock = transformer.attn_processors
    transformer.set_attn_processor(WeightedLastToken(T5_TOKENS))
    means = encode(vae, letters.images, device)
    vae.register_to_config(shift_factor=round(means.mean().item(), 4))
    latents = (means - vae.config.shift_factor) * vae.config.scaling_factor
    latents = latents.unflatten(0, letters.pixels.shape[:2])

    def loss(step: int) -> Tensor:
        looks, captions = letters.draw(batch, np.random.default_rng(step))
        clean = latents[tuple(torch.from_numpy(looks).T)]
        ids = tokenizer(
            captions, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="pt"
        ).input_ids.to(device)
        texts = [encoder(ids, output_hidden_states=True) for encoder in encoders]
        prompt = torch.cat([text.hidden_states[-2] for text in texts], dim=-1)
        noise = torch.randn_like(clean)
        # logit-normal times, as in SD3, shifted as the sampler's are: at 64 pixels too, most of
        # what a prompt decides about a letter is decided where nearly all is noise
        time = (torch.randn(batch, 1, 1, 1, device=device) + math.log(SHIFT)).sigmoid()
        velocity = transformer(
            clean.lerp(noise, time),
            F.pad(prompt, (0, 0, 0, 1)),
            torch.cat([text.text_embeds for text in texts], dim=-1),
            1_000 * time.flatten(),
        ).sample
        return F.mse_loss(velocity.float(), noise - clean)

    train("flow", [transformer, *encoders], loss, 1.5e-3, training)
    transformer.set_attn_processor(stock)
    silent, nothing = make_silent_t5(sum(TEXT_WIDTHS))
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=SHIFT),
        vae=vae,
        text_encoder=encoders[0],
        tokenizer=tokenizer,
        text_encoder_2=encoders[1],
        tokenizer_2=tokenizer,
        text_encoder_3=silent,
        tokenizer_3=nothing,
    )


def make_silent_t5(width: int) -> tuple[T5EncoderModel, T5TokenizerFast]:
    """A T5 that answers zeros, which is what Stable Diffusion 3 replaces a missing T5 with.

    It is there because `from_pretrained` takes no folder without one.
    """
    tokenizer = T5TokenizerFast(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)], extra_ids=0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=width, d_kv=8, d_ff=8, num_layers=1, num_heads=1
    )
    encoder = T5EncoderModel(config).eval()
    torch.nn.init.zeros_(encoder.encoder.final_layer_norm.weight)
    return encoder, tokenizer


def make_transformer(channels: int) -> SD3Transformer2DModel:
    """An untrained transformer, whose modulation and output are zero, as DiT's adaLN-Zero: training
    starts faster."""
    transformer = SD3Transformer2DModel(
        sample_size=16,
        in_channels=channels,
        out_channels=channels,
        num_layers=LAYERS,
        num_attention_heads=HEADS,
        attention_head_dim=32,
        caption_projection_dim=HEADS * 32,
        joint_attention_dim=sum(TEXT_WIDTHS),
        pooled_projection_dim=sum(TEXT_WIDTHS),
        pos_embed_max_size=8,
        qk_norm="rms_norm",
    )
    blocks = transformer.transformer_blocks
    modulations = [norm.linear for block in blocks for norm in (block.norm1, block.norm1_context)]
    for linear in [*modulations, transformer.norm_out.linear, transformer.proj_out]:
        torch.nn.init.zeros_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
    return transformer


class WeightedLastToken:
    """SD3's joint attention where the context's last token stands for `count` equal ones.

    Context tokens have no positions, so equal ones stay equal in every layer: training with one
    gives what the pipeline computes with `count`, several times as fast.
    """

    def __init__(self, count: int) -> None:
        self.weight = math.log(count)

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: None = None,
    ) -> tuple[Tensor, Tensor]:
        image, context = hidden_states, encoder_hidden_states

        def heads(x: Tensor) -> Tensor:
            return x.unflatten(2, (attn.heads, -1)).transpose(1, 2)

        query = attn.norm_q(heads(attn.to_q(image)))
        key = attn.norm_k(heads(attn.to_k(image)))
        value = heads(attn.to_v(image))
        query = torch.cat([query, attn.norm_added_q(heads(attn.add_q_proj(context)))], dim=2)
        key = torch.cat([key, attn.norm_added_k(heads(attn.add_k_proj(context)))], dim=2)
        value = torch.cat([value, heads(attn.add_v_proj(context))], dim=2)
        weights = query.new_zeros(key.shape[2])
        weights[-1] = self.weight
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=weights[None])
        mixed = mixed.transpose(1, 2).flatten(2)
        image, context = mixed[:, : image.shape[1]], mixed[:, image.shape[1] :]
        return attn.to_out[0](image), context if attn.context_pre_only else attn.to_add_out(context)


def train_letters_probe(
    letters: Letters, training: Training
) -> tuple[Probe, dict[str, dict[str, float]]]:
    """A classifier of letter, class, weight and slant, and two tests of its accuracy: on a tenth of
    the images of the families it knows, and on families that it does not."""
    torch.manual_seed(2)
    probe = Probe(CONCEPTS, list(ATTRIBUTES.items()), CAPTION)
    known = letters.where(~letters.held_out)
    unknown = letters.where(letters.held_out)
    tenth, kept = split_tenth(len(known.images))
    train_probe(probe, known.images[kept], known.labels[kept], training)
    return probe, {
        "a tenth of the images": accuracy(
            probe, known.images[tenth], known.labels[tenth], training.device
        ),
        "unseen families": accuracy(probe, unknown.images, unknown.labels, training.device),
    }


if __name__ == "__main__":
    main()
