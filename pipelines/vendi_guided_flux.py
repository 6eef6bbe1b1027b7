"""Flux whose pictures differ from one another, for the prompts asked.

pipe = VendiGuidedFluxPipeline.from_pretrained("black-forest-labs/FLUX.1-dev", dtype=torch.bfloat16)
images = pipe(["a person waving"] * 8).images
"""

from diffusers import FluxPipeline

from vendi_guidance.guidance.mixins import GuidedByCallback


class VendiGuidedFluxPipeline(GuidedByCallback, FluxPipeline):
    """`FluxPipeline` with diversity guidance; `diversity_scale=0` is the stock one.

    Prompts are told apart by the pooled CLIP embedding, which the stock pipeline computes and does
    not offer to callbacks.
    """

    prompt_input = "pooled_prompt_embeds"
    _callback_tensor_inputs = (*FluxPipeline._callback_tensor_inputs, "pooled_prompt_embeds")
