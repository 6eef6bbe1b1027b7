"""The demo models, and what each is judged with."""

from typing import NamedTuple


class DemoModel(NamedTuple):
    """How a model is used, and the names of the assets that it is judged with.

    Attributes:
        probe: knows what its images show.
        prompts, named: leave the look open, and name some of it.
        steps, guidance_scale: what it is usually called with.
        base: the model that its folder is a LoRA of, if it is one.
    """

    probe: str
    prompts: str
    named: str
    steps: int
    guidance_scale: float
    base: str = ""


EMOJI = ("demo-probe", "prompts/demo.txt", "prompts/named.txt")
LETTERS = ("demo-letters-probe", "prompts/letters.txt", "prompts/letters-named.txt")
FACES = ("demo-faces-probe", "prompts/faces.txt", "prompts/faces-named.txt")

MODELS = {
    "demo-sdxl": DemoModel(*EMOJI, 16, 5.0),
    "demo-sdxl-turbo-lora": DemoModel(*EMOJI, 4, 1.0, "demo-sdxl"),
    "demo-pixart": DemoModel(*EMOJI, 16, 4.0),
    "demo-flow": DemoModel(*LETTERS, 16, 4.0),
    "demo-faces": DemoModel(*FACES, 16, 4.0),
    "demo-faces-turbo-lora": DemoModel(*FACES, 4, 1.0, "demo-faces"),
}
"""By the names of their folders."""
