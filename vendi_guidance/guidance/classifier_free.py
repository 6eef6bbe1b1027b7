"""Classifier-free guidance (CFG) that begins late in a call.

CFG pulls all samples of a prompt towards its most likely image, against diversity guidance, and
does little else at the first steps (Kynkäänniemi et al., NeurIPS 2024). While it is off, its scale
is 1: the network's prediction for the prompt is used as it is.
"""

import math
from typing import Any

CFG_OFF = math.nextafter(1.0, 2.0)
"""As a scale of 1, at which pipelines would drop the negative prompt that later steps need."""

READ_SCALE_AT_EACH_STEP = {
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
"""Pipelines whose scale can change during a call, as can that of their subclasses. Others keep it
in a local variable."""


def can_delay_cfg(pipeline: Any) -> bool:
    """Whether the CFG scale of this pipeline can change during a call."""
    names = (base.__name__ for base in type(pipeline).__mro__)
    return not READ_SCALE_AT_EACH_STEP.isdisjoint(names)


def cannot_delay_cfg(pipeline: Any) -> str:
    """Why not, for an error message."""
    return (
        f"cfg_start has to be 0: a {type(pipeline).__name__} does not look up its "
        f"guidance_scale at each step, as {', '.join(sorted(READ_SCALE_AT_EACH_STEP))} do"
    )


class DelayedCFG:
    """Keeps a pipeline's CFG off until its first step with CFG."""

    def __init__(self) -> None:
        self._scale: float | None = None

    def first(self, guidance_scale: float) -> float:
        """The scale to call a pipeline with so that CFG, later of this scale, is off at first."""
        self._scale = guidance_scale
        return CFG_OFF if guidance_scale > 1 else guidance_scale

    def switch(self, pipeline: Any, on: bool) -> None:
        """Turn CFG on or off for the next step of this call."""
        if pipeline.guidance_scale != CFG_OFF:
            self._scale = pipeline.guidance_scale
        if self._scale is not None and self._scale > 1:
            pipeline._guidance_scale = self._scale if on else CFG_OFF
