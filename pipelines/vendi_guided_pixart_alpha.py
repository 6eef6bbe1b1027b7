"""PixArt-α with diversity guidance."""

from diffusers import PixArtAlphaPipeline

from vendi_guidance.guidance.mixins import GuidedInPlace


class VendiGuidedPixArtAlphaPipeline(GuidedInPlace, PixArtAlphaPipeline):
    """`PixArtAlphaPipeline` with diversity guidance; `diversity=0` is the stock one.

    Example:
        >>> pixart = "PixArt-alpha/PixArt-XL-2-1024-MS"
        >>> pipe = VendiGuidedPixArtAlphaPipeline.from_pretrained(pixart)  # doctest: +SKIP
        >>> images = pipe(["a person waving"] * 8).images  # doctest: +SKIP
    """
