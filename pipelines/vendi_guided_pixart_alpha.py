"""PixArt-α with diversity guidance."""

from diffusers import PixArtAlphaPipeline

from vendi_guidance.adapter.mixins import GuidedInPlace


class VendiGuidedPixArtAlphaPipeline(GuidedInPlace, PixArtAlphaPipeline):
    """`PixArtAlphaPipeline` with diversity guidance; `diversity=0` is the stock pipeline.

    Example:
        >>> pipe = VendiGuidedPixArtAlphaPipeline.from_pretrained("assets/demo-pixart")
        >>> images = pipe(["waving hand"] * 2, num_inference_steps=4).images
        >>> len(images), len(pipe.guidance.window)
        (2, 2)
    """
