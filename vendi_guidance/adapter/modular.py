"""Diversity guidance for diffusers' modular pipelines, which take no callbacks.

A denoising loop there is a sequence of blocks. `guide_loops` puts one before the others, which
begins to watch a call at its first step, and one behind them, which does what a callback would do.
"""

from typing import Any

from diffusers.modular_pipelines import LoopSequentialPipelineBlocks, ModularPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline_utils import InputParam

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import MASKS, POOLED, TOKENS

BEGIN, GUIDE = "diversity_begin", "diversity"
"""The names of the two blocks."""


class _LoopBlock(ModularPipelineBlocks):
    """A block of a denoising loop."""

    inputs = (
        InputParam("latents", description="Of the samples in flight."),
        InputParam("generator", description="Of fresh noise."),
        InputParam("timesteps", description="Of the call."),
        InputParam(kwargs_type="denoiser_input_fields", description="Prompt embeddings."),
    )

    def __init__(self, guidance: VendiGuidance) -> None:
        super().__init__()
        self.guidance = guidance

    def __deepcopy__(self, _: Any) -> "_LoopBlock":
        return type(self)(self.guidance)  # pipelines copy their blocks: they share the memory


class DiversityBegin(_LoopBlock):
    """Begins to watch scheduler and network at the first step of a call."""

    description = "Lets diversity guidance watch the scheduler and the network."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        if i == 0:
            self.guidance.begin(components, block_state.generator)
        return components, block_state


class DiversityStep(_LoopBlock):
    """Guides the latents after each step, and remembers them after the last."""

    description = "Makes the samples in flight differ from one another and from those remembered."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        names = ("latents", *POOLED, *TOKENS, *MASKS)
        given = {name: getattr(block_state, name, None) for name in names}
        tensors = {name: value for name, value in given.items() if value is not None}
        count = len(block_state.timesteps)
        block_state.latents = self.guidance.guide(components, i, count, tensors)["latents"]
        return components, block_state


def guide_loops(blocks: ModularPipelineBlocks, guidance: VendiGuidance) -> int:
    """Put guidance into the denoising loops of modular blocks, in place.

    Args:
        blocks: a loop, or blocks with loops somewhere within, before `init_pipeline`.
        guidance: as for a callback; its window is shared by all loops and calls.

    Returns:
        How many loops there are. Guidance that is there already is replaced.

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
    """Those over timesteps."""
    if isinstance(blocks, LoopSequentialPipelineBlocks):
        steps = any(it.name == "timesteps" for it in blocks.loop_inputs)
        return [blocks] if steps else []
    return [loop for block in blocks.sub_blocks.values() for loop in _loops(block)]
