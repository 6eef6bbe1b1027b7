"""Model cards of the flow demo, its probe and its training images."""

from pathlib import Path

from scripts.demo.held_out import Measured, as_table
from scripts.demo.letters import ATTRIBUTES, EMPTY, FAMILIES, HELD_OUT, NAMED, SHARES, Letters
from scripts.demo.model_card import PIPELINE

_ROWS = "\n".join(
    f"| {kind} | {', '.join(f'`@fontsource/{family}`' for family in families)} |"
    for kind, families in FAMILIES.items()
)

_LICENCES = f"""## Data and licences

All typefaces are under the [SIL Open Font License 1.1](https://openfontlicense.org) and come from
npm, whose packages have each one's copyright notice:

| class | npm packages |
|---|---|
{_ROWS}

Google Fonts' categories say which class a family has. Letters were drawn in black on white, as
large as all 26 of a family fit in 56x56 pixels on one baseline. The font software itself is not
part of this folder.
"""

_SHARES = "; ".join(
    ", ".join(f"{value} {share:.0%}" for value, share in zip(values, SHARES[name], strict=True))
    for name, values in ATTRIBUTES.items()
)


def write_flow_card(
    folder: Path,
    letters: Letters,
    measured: dict[str, Measured],
    vae_steps: int,
    flow_steps: int,
    batch: int,
    device: str,
) -> None:
    """Write `folder`/README.md for the pipeline; `measured` has what it draws, by how."""
    [dtype] = {one.dtype for one in measured.values()}
    (folder / "README.md").write_text(
        f"""{PIPELINE}# demo-flow: a real, tiny Stable Diffusion 3

A `StableDiffusion3Pipeline` of 2.6 million parameters that draws letters in typefaces, 64x64
pixels: rectified flow with a multimodal diffusion transformer. It exists to show diversity guidance
on any machine and generates only lowercase letters.

    from diffusers import StableDiffusion3Pipeline
    pipe = StableDiffusion3Pipeline.from_pretrained("assets/demo-flow")
    pipe("letter g, serif, italic", num_inference_steps=16, guidance_scale=4).images[0]

A prompt is a letter, then what it names of class ({", ".join(ATTRIBUTES["class"])}), weight
({", ".join(ATTRIBUTES["weight"])}) and slant ({", ".join(ATTRIBUTES["slant"])}).

## Training

`python -m scripts.demo.train_flow`: an AutoencoderKL ({vae_steps:,} steps of {batch // 2} images),
then the transformer and both CLIP text encoders together ({flow_steps:,} steps of {batch}), on
{device}; velocity prediction, logit-normal times. The third text encoder, a T5, answers zeros: that
is what the pipeline replaces a missing T5 with, but `from_pretrained` takes no folder without one.

The training set has {len(letters.images):,} images: 26 letters in {len(letters.families)} faces
of {len(set(letters.families))} families. A caption names class, weight and slant in {NAMED:.0%} of
cases each, independently; {EMPTY:.0%} of captions are empty, for classifier-free guidance.

**The training set is unbalanced on purpose.** What a caption names is drawn evenly; what it leaves
open is drawn as on the web: {_SHARES}. So the model repeats itself, as models trained on web data
do. All 20 combinations exist. The families {", ".join(HELD_OUT)} are held out.

## What it draws

Counted by `demo-letters-probe` in {dtype}, without diversity guidance: 16 images of each prompt of
`assets/prompts/letters.txt`, and 8 of each of `assets/prompts/letters-named.txt`, which name one to
three attributes. Looks are distinct combinations of class, weight and slant among a prompt's 16
images; 20 exist.

{as_table(measured)}

{_LICENCES}""",
        encoding="utf-8",
    )


def write_letters_probe_card(
    folder: Path, tests: dict[str, dict[str, float]], steps: int, batch: int, device: str
) -> None:
    """Write `folder`/README.md for the probe; `tests` has each test's accuracy by head."""
    heads = "\n".join(
        f"| {head} | {' | '.join(f'{test[head]:.1%}' for test in tests.values())} |"
        for head in next(iter(tests.values()))
    )
    (folder / "README.md").write_text(
        f"""---
license: apache-2.0
---
# demo-letters-probe: which letter, which class of typeface, which weight and slant

A small convolutional classifier of 64x64 images (`vendi_guidance.features.probe.Probe`), trained by
`python -m scripts.demo.train_flow` for {steps:,} steps of {batch} on {device}, on the training
images of `demo-flow` with random shifts, scales, blur and noise. Its last hidden layer (128 units)
is an image embedding; its heads give labels.

Accuracy on images held out of training: a random tenth of those of the families it knows, and all
of five families that neither it nor `demo-flow` has seen ({", ".join(HELD_OUT)}):

| head | {" | ".join(tests)} |
|---|{"---|" * len(tests)}
{heads}

A single letter often fits two classes: an o may be sans-serif as well as monospaced, and every
display face is a class of its own. So the class of an unseen family is guessed less well.

{_LICENCES}""",
        encoding="utf-8",
    )


def write_letters_card(folder: Path, letters: Letters) -> None:
    """Write `folder`/README.md for the training images."""
    (folder / "README.md").write_text(
        f"""---
license: other
---
# demo-letters: the training images of the flow demo

The {len(letters.images):,} images of 64x64 pixels that `demo-flow` was trained on, in lossless
compression: 26 letters in {len(letters.families)} faces. A face is a family in one weight and
slant.

There is one sheet per class of typefaces. It has one row per letter, a to z, and one column per
face, in the order of `faces.txt`. `load_sheets` in `scripts/demo/letters_sheets.py` reads them. To
rebuild the sheets from the npm packages:

    python -m scripts.demo.letters_sheets --data out/letters --output assets/demo-letters

Handwriting that has no italics but slants as it is drawn (Caveat, Dancing Script, Kalam) counts as
italic.

{_LICENCES}""",
        encoding="utf-8",
    )
