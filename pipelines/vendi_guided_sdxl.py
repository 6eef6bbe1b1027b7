"""Stable Diffusion XL whose pictures differ from one another, for the prompts asked.

pipe = VendiGuidedSDXLPipeline.from_pretrained("stabilityai/stable-diffusion-xl-base-1.0")
images = pipe(["a person waving"] * 8).images
"""

from diffusers import StableDiffusionXLPipeline

from vendi_guidance.guidance.mixins import GuidedByCallback


class VendiGuidedSDXLPipeline(GuidedByCallback, StableDiffusionXLPipeline):
    """`StableDiffusionXLPipeline` with diversity guidance; `diversity_scale=0` is the stock one."""

    prompt_input = "add_text_embeds"
