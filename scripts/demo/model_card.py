"""Model cards of the demo model and its probe: contents, training data and licences."""

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
    vendors = ", ".join(f"{v} {s:.0%}" for v, s in zip(VENDORS, VENDOR_SHARES, strict=True))
    pictures, concepts = f"{emoji.pixels[..., 0, 0, 0].numel():,}", len(emoji.concepts)
    tones = ", ".join(f"{t} {s:.0%}" for t, s in zip(TONES, TONE_SHARES, strict=True))
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-image
---
# demo-sdxl: a real, tiny SDXL

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

The training set has {pictures} images: {concepts} concepts, each by {len(VENDORS)} vendors
in {len(TONES)} skin tones. A caption names the tone in {NAMED:.0%} of cases and, independently, the
vendor in {NAMED:.0%}; {EMPTY:.0%} of captions are empty, for classifier-free guidance.

**The training set is unbalanced on purpose.** Where a caption leaves them open, vendors are
drawn {vendors}; tones {tones}. So the model repeats itself, as models trained on web data do.

Concepts: {", ".join(emoji.concepts)}.

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
