"""Model cards of the faces demo and its probe."""

from pathlib import Path

from scripts.demo.faces import ALIKE, ATTRIBUTES, COMMON, EMPTY, NAMED, Faces
from scripts.demo.held_out import Measured, as_table
from scripts.demo.model_card import PIPELINE
from scripts.demo.packages import FACES_PACKAGES

_LICENCES = f"""## Data and licences

The portraits are of the style [Open Peeps](https://www.openpeeps.com) by Pablo Stanley, which is
[CC0 1.0](https://creativecommons.org/publicdomain/zero/1.0/), as `dicebear-styles` has it. They
were composed by `dicebear-core` and `dicebear-styles` (MIT), and rendered by `resvg-py` (MIT):
`pip install {FACES_PACKAGES}`. None of these is part of this folder. The weights are released under
Apache-2.0.
"""

_VALUES = "\n".join(f"* {name}: {', '.join(values)}" for name, values in ATTRIBUTES.items())


def write_faces_card(
    folder: Path, faces: Faces, measured: dict[str, Measured], trained: str
) -> None:
    """Write `folder`/README.md for the pipeline.

    Args:
        measured: what it generates, by how.
        trained: the stages with their steps, the time and the machine.
    """
    [dtype] = {one.dtype for one in measured.values()}
    shares = ", ".join(f"{count} in {share:.0%}" for count, share in enumerate(NAMED))
    (folder / "README.md").write_text(
        f"""{PIPELINE}# demo-faces: a small Stable Diffusion 3 of portraits

A `StableDiffusion3Pipeline` of 5.8 million parameters that generates drawn portraits of 128x128
pixels (32x32 latents): rectified flow with a multimodal diffusion transformer. It exists to show
diversity guidance where many things can vary, and generates nothing else.

    from diffusers import StableDiffusion3Pipeline
    pipe = StableDiffusion3Pipeline.from_pretrained("assets/demo-faces")
    pipe("portrait, bun, red hair, sunglasses", num_inference_steps=16, guidance_scale=4).images[0]

A prompt is `portrait`, then what it names of seven attributes, in this order and these words
("red hair", "dark skin", "blue clothes", "white background"):

{_VALUES}

## Training

`python -m scripts.demo.train_faces`: {trained}; velocity prediction,
logit-normal times. The third text encoder, a T5, answers zeros: that is what the pipeline replaces
a missing T5 with, but `from_pretrained` takes no folder without one.

The training set has {len(faces.shown):,} images of {len(faces.kinds):,} looks. Captions name no
attribute, one, two or three ({shares}); {EMPTY:.0%} of captions are empty, for classifier-free
guidance. A tenth of all combinations is held out of all training.

**The training set is unbalanced on purpose.** What a caption names is even. What it leaves open is,
in {ALIKE:.0%} of images, the first value of the list above in every attribute at once; in the
others each attribute has that value in {COMMON:.0%} beside what is even. So the model repeats
itself, as models trained on web data do. Who is common in these images says nothing about people.

## What it generates

Counted by `demo-faces-probe` in {dtype}, without diversity guidance: 16 images of each prompt of
`assets/prompts/faces.txt`, which name at most one attribute, and 8 of each of
`assets/prompts/faces-named.txt`, which name one to three. Looks are distinct combinations of all
seven attributes among a prompt's 16 images.

{as_table(measured)}

{_LICENCES}""",
        encoding="utf-8",
    )


def write_faces_probe_card(
    folder: Path, tests: dict[str, dict[str, float]], steps: int, batch: int, device: str
) -> None:
    """Write `folder`/README.md for the probe; `tests` has each test's accuracy by head."""
    heads = "\n".join(
        f"| {head} | {' | '.join(f'{test[head]:.1%}' for test in tests.values())} |"
        for head in ATTRIBUTES
    )
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
---
# demo-faces-probe: hair, hair colour, skin, glasses, expression, clothes and background

A small convolutional classifier (`vendi_guidance.features.probe.Probe`) of portraits at 64x64
pixels, trained by `python -m scripts.demo.train_faces` for {steps:,} steps of {batch} on {device},
on the training images of `demo-faces` with random shifts, scales, blur and noise. Its last hidden
layer (128 units) is an image embedding; its heads give labels.

Accuracy on drawings held out of training: a random tenth of the looks, and looks that occur in no
training at all:

| head | {" | ".join(tests)} |
|---|{"---|" * len(tests)}
{heads}

{_LICENCES}""",
        encoding="utf-8",
    )
