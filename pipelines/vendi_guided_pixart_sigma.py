"""PixArt-Σ with diversity guidance."""

from diffusers import PixArtSigmaPipeline

from vendi_guidance.adapter.mixins import GuidedInPlace


class VendiGuidedPixArtSigmaPipeline(GuidedInPlace, PixArtSigmaPipeline):
    """`PixArtSigmaPipeline` with diversity guidance; `diversity=0` is the stock pipeline.

    Example:
        >>> pipe = VendiGuidedPixArtSigmaPipeline.from_pretrained("assets/demo-pixart")
        >>> images = pipe(["waving hand"] * 2, num_inference_steps=4).images
        >>> len(images), len(pipe.guidance.window)
        (2, 2)
    """
