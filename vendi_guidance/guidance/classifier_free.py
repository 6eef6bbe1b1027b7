"""Classifier-free guidance that begins late in a call.

It draws all samples of a prompt to where the prompt is most likely, against diversity guidance, and
does little else at the first steps (Kynkäänniemi et al., NeurIPS 2024). At rest, with a scale of 1,
the network's prediction for the prompt is taken as it is.
"""

import math
from typing import Any

RESTING = math.nextafter(1.0, 2.0)
"""As good as 1; at 1 itself pipelines would drop the negative prompt, which later steps need."""

LOOK_UP_AT_EACH_STEP = {
    "CogVideoXPipeline",
    "CogView4Pipeline",
    "KandinskyV22Pipeline",
    "KolorsPipeline",
    "LTXPipeline",
    "StableDiffusion3Pipeline",
    "StableDiffusionPipeline",
    "StableDiffusionXLImg2ImgPipeline",
    "StableDiffusionXLInpaintPipeline",
    "StableDiffusionXLPipeline",
}
"""Pipelines that can be told another scale during a call, as can those derived from them. Others
have it in a variable of their own."""


def can_rest(pipeline: Any) -> bool:
    """Whether the scale of this pipeline can be changed during a call."""
    return not LOOK_UP_AT_EACH_STEP.isdisjoint(base.__name__ for base in type(pipeline).__mro__)


def check_can_rest(pipeline: Any) -> None:
    """Raise ValueError if it cannot."""
    if not can_rest(pipeline):
        raise ValueError(
            f"cfg_start has to be 0: a {type(pipeline).__name__} does not look up its "
            f"guidance_scale at each step, as {', '.join(sorted(LOOK_UP_AT_EACH_STEP))} do"
        )


class LateStart:
    """Keeps a pipeline's classifier-free scale at rest until its time has come.

    A call of a pipeline begins with the scale it is given, which is to be `first`.
    """

    def __init__(self) -> None:
        self._full: float | None = None

    def first(self, guidance_scale: float) -> float:
        """What to call a pipeline with so that the first step rests too.

        Args:
            guidance_scale: what it shall have later on.
        """
        self._full = guidance_scale
        return RESTING if guidance_scale > 1 else guidance_scale

    def set(self, pipeline: Any, rests: bool) -> None:
        """Let the next step of this call rest, or not."""
        if pipeline.guidance_scale != RESTING:
            self._full = pipeline.guidance_scale
        if self._full is not None and self._full > 1:
            pipeline._guidance_scale = RESTING if rests else self._full
