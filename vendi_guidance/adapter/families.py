"""What is peculiar to a family of pipelines: a row each, with its reason.

A pipeline that is not in the table does as most do: rows of negative prompts come first, what is
appended to latents comes last, what its callback returns counts, and pooled embeddings are CLIP's.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    """Pipelines whose classes, or bases of them, have names that begin alike.

    Attributes:
        beginning: of the names.
        prompts_first: rows of prompts precede those of negative prompts.
        latents_last: what is appended to latents, as channels or tokens, precedes them.
        is_in_place: there is only the older `callback`, which changes latents in place.
        ignores_callback: what the callback returns has no effect.
        tokens_per_frame: prompt embeddings have a row for each frame of a video.
        pools_language_model: pooled embeddings are a language model's, not CLIP's.
        no_cfg: the guidance scale up to which there is no CFG.
    """

    beginning: str
    prompts_first: bool = False
    latents_last: bool = False
    is_in_place: bool = False
    ignores_callback: bool = False
    tokens_per_frame: bool = False
    pools_language_model: bool = False
    no_cfg: float = 1.0


OTHERS = Family("")

# those with `prompts_first` join prompts and negative prompts in this order
FAMILIES = (
    Family("AnimateDiff", tokens_per_frame=True),  # repeats prompts for frames, rows of the UNet
    Family("Kolors", pools_language_model=True),  # encodes prompts with ChatGLM alone
    Family("Krea2", no_cfg=0.0),  # a scale w adds w times the difference that prompts make
    Family("LuminaPipeline", prompts_first=True),
    Family("PixArtAlphaPipeline", is_in_place=True),  # was not given callback_on_step_end
    Family("PixArtSigmaPipeline", is_in_place=True),  # nor was it
    Family("PRXPipeline", ignores_callback=True),  # calls its callback and drops the result
    Family("QwenImage21", latents_last=True),  # puts the tokens of conditions before latents
    Family("StableCascade", prompts_first=True),
    Family("StableDiffusionInstructPix2Pix", prompts_first=True),  # then those without the image
    Family("Wuerstchen", prompts_first=True),
    Family("ZImage", prompts_first=True, no_cfg=0.0),  # joins lists; scales as Krea 2 does
)

NOT_PER_SAMPLE = ("img_ids", "txt_ids", "image_rotary_emb", "freqs_cis")
"""Arguments of networks that tell positions, without a row for each sample whatever their length,
in Flux, Hunyuan, Lumina and the families after them."""


def family_of(pipeline: Any) -> Family:
    """The row of a pipeline or its class."""
    kind = pipeline if isinstance(pipeline, type) else type(pipeline)
    names = [base.__name__ for base in kind.__mro__]
    rows = (row for row in FAMILIES if any(name.startswith(row.beginning) for name in names))
    return next(rows, OTHERS)
