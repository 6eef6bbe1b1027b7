"""Stable Diffusion XL with diversity guidance."""

from diffusers import StableDiffusionXLPipeline

from vendi_guidance.adapter.mixins import DiversityGuided


class VendiGuidedSDXLPipeline(DiversityGuided, StableDiffusionXLPipeline):
    """`StableDiffusionXLPipeline` with diversity guidance; `diversity=0` is the stock pipeline.

    Example:
        >>> pipe = VendiGuidedSDXLPipeline.from_pretrained("assets/demo-sdxl")
        >>> images = pipe(["waving hand"] * 4, num_inference_steps=4).images
        >>> len(images), len(pipe.guidance.window)
        (4, 4)
    """

    prompt_input = "add_text_embeds"
