"""Stable Diffusion XL whose images of a prompt differ from one another, as modular blocks."""

import copy
from typing import Any

from diffusers.modular_pipelines import (
    ModularPipelineBlocks,
    SequentialPipelineBlocks,
    StableDiffusionXLAutoBlocks,
)
from diffusers.modular_pipelines.modular_pipeline_utils import InputParam

from vendi_guidance import Rounds, VendiGuidance, guide_loops


class SetDiversity(ModularPipelineBlocks):
    """Sets the dial of a call, and has the memory, which lasts from call to call."""

    description = "Sets how far the images of a prompt shall differ from one another."
    inputs = (
        InputParam(
            "diversity",
            type_hint=float,
            default=Rounds.diversity,
            description="The dial: 0 is the stock pipeline, 1 gives the most variety.",
        ),
    )
    _requirements = {"vendi-guidance": ">=0.4"}  # noqa: RUF012 (diffusers wants a dict)

    def __init__(self) -> None:
        super().__init__()
        self.guidance = VendiGuidance()

    def __deepcopy__(self, _: Any) -> "SetDiversity":
        return copy.copy(self)  # pipelines copy their blocks; copies share the memory

    def __call__(self, components: Any, state: Any) -> tuple[Any, Any]:
        self.guidance.settings = Rounds(diversity=self.get_block_state(state).diversity)
        return components, state


class VendiGuidedSDXLBlocks(SequentialPipelineBlocks):
    """All blocks of Stable Diffusion XL, with guidance in their denoising loops."""

    block_classes = (SetDiversity, StableDiffusionXLAutoBlocks)
    block_names = ("diversity", "stable_diffusion_xl")
    _workflow_map = StableDiffusionXLAutoBlocks._workflow_map
    description = "Stable Diffusion XL whose images of a prompt differ from one another."

    def __init__(self) -> None:
        super().__init__()
        guide_loops(self, self.sub_blocks["diversity"].guidance)
