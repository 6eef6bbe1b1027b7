"""PixArt-Σ whose pictures differ from one another, for the prompts asked.

pipe = VendiGuidedPixArtSigmaPipeline.from_pretrained("PixArt-alpha/PixArt-Sigma-XL-2-1024-MS")
images = pipe(["a person waving"] * 8).images
"""

from diffusers import PixArtSigmaPipeline

from vendi_guidance.guidance.mixins import GuidedInPlace


class VendiGuidedPixArtSigmaPipeline(GuidedInPlace, PixArtSigmaPipeline):
    """`PixArtSigmaPipeline` with diversity guidance; `diversity_scale=0` is the stock one."""
