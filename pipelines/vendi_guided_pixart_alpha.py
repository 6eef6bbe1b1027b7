"""PixArt-α whose pictures differ from one another, for the prompts asked.

pipe = VendiGuidedPixArtAlphaPipeline.from_pretrained("PixArt-alpha/PixArt-XL-2-1024-MS")
images = pipe(["a person waving"] * 8).images
"""

from diffusers import PixArtAlphaPipeline

from vendi_guidance.guidance.mixins import GuidedInPlace


class VendiGuidedPixArtAlphaPipeline(GuidedInPlace, PixArtAlphaPipeline):
    """`PixArtAlphaPipeline` with diversity guidance; `diversity_scale=0` is the stock one."""
