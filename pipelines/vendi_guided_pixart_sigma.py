"""PixArt-Σ with diversity guidance."""

from diffusers import PixArtSigmaPipeline

from vendi_guidance.guidance.mixins import GuidedInPlace


class VendiGuidedPixArtSigmaPipeline(GuidedInPlace, PixArtSigmaPipeline):
    """`PixArtSigmaPipeline` with diversity guidance; `diversity=0` is the stock one.

    Example:
        >>> pixart = "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS"
        >>> pipe = VendiGuidedPixArtSigmaPipeline.from_pretrained(pixart)  # doctest: +SKIP
        >>> images = pipe(["a person waving"] * 8).images  # doctest: +SKIP
    """
