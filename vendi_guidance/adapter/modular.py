"""Diversity guidance for diffusers' modular pipelines, as two blocks of a denoising loop: a first
one, which begins to watch the call, and a last one, which does the work of a callback."""

from typing import Any

from diffusers.modular_pipelines import LoopSequentialPipelineBlocks, ModularPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline_utils import InputParam

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import MASKS, POOLED, UNPOOLED

BEGIN, GUIDE = "diversity_begin", "diversity"
"""The names of the two blocks."""


class _LoopBlock(ModularPipelineBlocks):
    """A block of a denoising loop that belongs to guidance."""

    inputs = (
        InputParam("latents", description="Latents of the current step."),
        InputParam("timesteps", description="Timesteps of the call."),
        InputParam(kwargs_type="denoiser_input_fields", description="Prompt embeddings."),
    )

    def __init__(self, guidance: VendiGuidance) -> None:
        super().__init__()
        self.guidance = guidance

    def __deepcopy__(self, _: Any) -> "_LoopBlock":
        return type(self)(self.guidance)  # pipelines copy their blocks; copies share the memory


class DiversityBegin(_LoopBlock):
    """Begins to watch the scheduler and the network at the first step of a call."""

    description = "Lets diversity guidance watch the scheduler and the network."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        if i == 0:
            self.guidance.begin(components, block_state).open(components)
        return components, block_state


class DiversityStep(_LoopBlock):
    """Guides the latents after each step, and remembers them after the last one."""

    description = "Moves samples away from one another and from remembered ones."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        names = ("latents", *POOLED, *UNPOOLED, *MASKS)
        given = {name: getattr(block_state, name, None) for name in names}
        tensors = {name: value for name, value in given.items() if value is not None}
        count = len(block_state.timesteps)
        block_state.latents = self.guidance.guide(components, i, count, tensors)["latents"]
        return components, block_state


def guide_loops(blocks: ModularPipelineBlocks, guidance: VendiGuidance) -> int:
    """Insert guidance into the denoising loops of modular blocks, in place.

    Guidance that was inserted before is replaced.

    Args:
        blocks: a denoising loop, or blocks that contain some, before `init_pipeline`.
        guidance: the guidance; all loops and calls share its window.

    Returns:
        The number of loops.

    Raises:
        ValueError: there is no denoising loop.

    Example:
        >>> from diffusers import SequentialPipelineBlocks
        >>> from diffusers.modular_pipelines.stable_diffusion_xl import StableDiffusionXLAutoBlocks
        >>> from vendi_guidance import VendiGuidance, guide_loops
        >>> blocks = StableDiffusionXLAutoBlocks()
        >>> guide_loops(blocks, VendiGuidance())
        4
        >>> pipe = blocks.init_pipeline()
    """
    loops = _loops(blocks)
    if not loops:
        raise ValueError(
            f"{type(blocks).__name__} has no denoising loop of blocks: give the blocks that have it"
        )
    for loop in loops:
        loop.sub_blocks.insert(BEGIN, DiversityBegin(guidance), 0)
        loop.sub_blocks.pop(GUIDE, None)
        loop.sub_blocks[GUIDE] = DiversityStep(guidance)
    return len(loops)


def _loops(blocks: ModularPipelineBlocks) -> list[LoopSequentialPipelineBlocks]:
    """The loops over timesteps."""
    if isinstance(blocks, LoopSequentialPipelineBlocks):
        is_denoising = any(it.name == "timesteps" for it in blocks.loop_inputs)
        return [blocks] if is_denoising else []
    return [loop for block in blocks.sub_blocks.values() for loop in _loops(block)]
