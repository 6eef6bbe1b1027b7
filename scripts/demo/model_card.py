"""Model cards of the demo models and the probe: contents, training data, numbers and licences."""

from pathlib import Path

from scripts.demo.emoji import (
    EMPTY,
    NAMED,
    PACKAGES,
    TONE_SHARES,
    TONES,
    VENDOR_SHARES,
    VENDORS,
    Emoji,
)
from scripts.demo.held_out import Measured, as_table

PIPELINE = """---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-image
---
"""
"""How a pipeline's card begins."""

_SOURCES = "\n".join(
    f"* {licence} (npm package `{package}`)" for package, licence in PACKAGES.values()
)

_LICENCES = f"""## Data and licences

{_SOURCES}

Twemoji graphics are made by Twitter, Inc. and other contributors, licensed under CC-BY 4.0:
<https://creativecommons.org/licenses/by/4.0/>. Noto Emoji is by Google, Fluent Emoji by Microsoft.
Images were scaled to 64x64 pixels and composited on white. Names are those of `emoji.json` in the
emoji-datasource packages (MIT). The weights are released under Apache-2.0; generated images that
closely resemble a vendor's artwork are under that artwork's licence.
"""


def write_model_card(
    folder: Path, emoji: Emoji, vae_steps: int, unet_steps: int, batch: int, device: str
) -> None:
    """Write `folder`/README.md for the demo SDXL."""
    (folder / "README.md").write_text(
        f"""{PIPELINE}# demo-sdxl: a real, tiny SDXL

A `StableDiffusionXLPipeline` of a few million parameters that draws 64x64 emoji. It exists to show
diversity guidance on any machine and generates only the concepts listed below.

    from diffusers import StableDiffusionXLPipeline
    pipe = StableDiffusionXLPipeline.from_pretrained("assets/demo-sdxl")
    pipe("waving hand, dark skin tone", num_inference_steps=25, guidance_scale=3).images[0]

## Training

`python -m scripts.demo.train`: an AutoencoderKL ({vae_steps:,} steps of {batch // 2} images),
then the UNet and both text encoders together ({unet_steps:,} steps of {batch}), on {device};
velocity prediction, zero terminal SNR, trailing timesteps, `clip_sample: false` (latents exceed
[-1, 1]).

{_training_set(emoji)}

{_LICENCES}""",
        encoding="utf-8",
    )


def write_pixart_card(
    folder: Path, emoji: Emoji, measured: Measured, training: str, cfg: float, steps: int
) -> None:
    """Write `folder`/README.md for the demo PixArt.

    Args:
        training: the numbers of steps and images, the time and the machine.
        cfg, steps: of the pictures that were measured.
    """
    (folder / "README.md").write_text(
        f"""{PIPELINE}# demo-pixart: a real, tiny PixArt-Sigma

A `PixArtSigmaPipeline` of a few million parameters that draws 64x64 emoji: a transformer on patches
of 2x2 latents, a T5 encoder and the autoencoder of `demo-sdxl`. It shows diversity guidance on a
transformer and generates only the concepts listed below. PixArt's resolution bins do not go down to
64 pixels, so they must be switched off; a shorter text than the default 300 tokens saves time.

    from diffusers import PixArtSigmaPipeline
    pipe = PixArtSigmaPipeline.from_pretrained("assets/demo-pixart")
    pipe("waving hand, dark skin tone", num_inference_steps={steps}, guidance_scale={cfg:g},
         use_resolution_binning=False, max_sequence_length=32).images[0]

## Training

`python -m scripts.demo.train_pixart`: the transformer and the T5 encoder together, from scratch;
velocity prediction, zero terminal SNR, trailing timesteps, as for `demo-sdxl`. {training}.

{_training_set(emoji)}

## What it draws

{_held_out({f"{steps} steps, CFG scale {cfg:g}": measured})}

{_LICENCES}""",
        encoding="utf-8",
    )


def write_turbo_card(
    folder: Path,
    emoji: Emoji,
    measured: dict[str, Measured],
    drawing: str,
    training: str,
    cfg: float,
) -> None:
    """Write `folder`/README.md for the LoRA that makes the demo SDXL a few-step student.

    Args:
        measured: the teacher and the student at numbers of steps, by their names.
        drawing, training: the numbers of trajectories, and of the LoRA's rank, steps and images,
            with the time and the machine.
        cfg: scale of the teacher's.
    """
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-image
tags: [lora]
---
# demo-sdxl-turbo-lora: demo-sdxl in a few steps

A LoRA of the UNet of `demo-sdxl`: the model distilled to 4 steps without classifier-free guidance
(CFG), for diversity guidance of distilled models, which repeat themselves most and have no CFG to
switch off. 1, 2 and 8 steps work as well. Loading it needs `peft` (`vendi-guidance[lora]`).

    from diffusers import StableDiffusionXLPipeline
    pipe = StableDiffusionXLPipeline.from_pretrained("assets/demo-sdxl")
    pipe.load_lora_weights("assets/demo-sdxl-turbo-lora")
    pipe("waving hand, dark skin tone", num_inference_steps=4, guidance_scale=0).images[0]

`pipe.disable_lora()` is the teacher again.

## Training

`python -m scripts.demo.train_turbo`: {drawing},
for captions as in the teacher's training set, empty ones left out, with CFG scale {cfg:g}. The
LoRA learned to make the UNet jump from any point of a trajectory to its end, later also from where
its own first jump leads. {training}.

## What it draws

{_held_out(measured)}

## The teacher's training set

{_training_set(emoji)}

{_LICENCES}""",
        encoding="utf-8",
    )


def write_probe_card(
    folder: Path, emoji: Emoji, accuracy: dict[str, float], steps: int, device: str
) -> None:
    """Write `folder`/README.md for the probe, with its accuracy on held-out images."""
    pictures = f"{emoji.pixels[..., 0, 0, 0].numel():,}"
    rows = "\n".join(f"| {head} | {share:.1%} |" for head, share in accuracy.items())
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
---
# demo-probe: which emoji, which vendor, which skin tone

A small convolutional classifier of 64x64 images (`vendi_guidance.features.probe.Probe`),
trained by `python -m scripts.demo.train` for {steps:,} steps on {device}, on the training images
of `demo-sdxl` with random shifts, scales, blur and noise. Its last hidden layer (128 units) is the
demo's image embedding; its heads give the demo's labels. `training_features.safetensors` contains
the embeddings of all training images, the evaluator's reference.

Accuracy on a random tenth of the {pictures} images (combinations of concept, vendor and tone),
held out of training:

| head | held-out accuracy |
|---|---|
{rows}

{_LICENCES}""",
        encoding="utf-8",
    )


def _training_set(emoji: Emoji) -> str:
    vendors = ", ".join(f"{v} {s:.0%}" for v, s in zip(VENDORS, VENDOR_SHARES, strict=True))
    pictures, concepts = f"{emoji.pixels[..., 0, 0, 0].numel():,}", len(emoji.concepts)
    tones = ", ".join(f"{t} {s:.0%}" for t, s in zip(TONES, TONE_SHARES, strict=True))
    return f"""\
The training set has {pictures} images: {concepts} concepts, each by {len(VENDORS)} vendors
in {len(TONES)} skin tones. A caption names the tone in {NAMED:.0%} of cases and, independently, the
vendor in {NAMED:.0%}; {EMPTY:.0%} of captions are empty, for classifier-free guidance.

**The training set is unbalanced on purpose.** Where a caption leaves them open, vendors are
drawn {vendors}; tones {tones}. So the model repeats itself, as models trained on web data do.

Concepts: {", ".join(emoji.concepts)}."""


def _held_out(measured: dict[str, Measured]) -> str:
    """What the probe saw."""
    [dtype] = {one.dtype for one in measured.values()}
    return f"""\
Counted by `demo-probe` in {dtype}, without diversity guidance: 16 images of each prompt of
`assets/prompts/demo.txt`, which leave tone and vendor open, and 8 of each of
`assets/prompts/named.txt`, which name one or both. Looks are distinct correct pairs of vendor and
tone among a prompt's 16 images; 18 exist.

{as_table(measured)}"""
