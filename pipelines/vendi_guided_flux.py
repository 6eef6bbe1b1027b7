"""Flux with diversity guidance."""

from diffusers import FluxPipeline

from vendi_guidance.adapter.mixins import DiversityGuided


class VendiGuidedFluxPipeline(DiversityGuided, FluxPipeline):
    """`FluxPipeline` with diversity guidance; `diversity=0` is the stock pipeline.

    Prompts are compared by their pooled CLIP embeddings, which the stock pipeline does not offer to
    callbacks.

    Example:
        >>> flux = "black-forest-labs/FLUX.1-dev"
        >>> pipe = VendiGuidedFluxPipeline.from_pretrained(flux)  # doctest: +SKIP
        >>> images = pipe(["a person waving"] * 8).images  # doctest: +SKIP
    """

    prompt_input = "pooled_prompt_embeds"
    _callback_tensor_inputs = (*FluxPipeline._callback_tensor_inputs, "pooled_prompt_embeds")
