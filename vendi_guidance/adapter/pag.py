"""Perturbed-attention guidance (PAG; Ahn et al., ECCV 2024) left out of an evaluation.

PAG pipelines append rows to each batch for which some layers replace self-attention by the
identity. While such a call runs, these layers have attention processors that split a batch into its
parts, and so cannot evaluate the rows of the prompts alone.
"""

import re
from collections.abc import Callable
from typing import Any

from diffusers.models import attention_processor
from torch import nn


def has_pag(pipeline: Any) -> bool:
    """Whether PAG is on in the pipeline's call."""
    return bool(getattr(pipeline, "do_perturbed_attention_guidance", False))


def without_pag(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` of a network in which no layer perturbs its attention."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        processors = ((it, getattr(it, "processor", None)) for it in module.modules())
        perturbing = [(it, own) for it, own in processors if _is_pag(own)]
        try:
            for layer, processor in perturbing:
                layer.processor = _plain(processor)
            return forward(*args, **kwargs)
        finally:
            for layer, processor in perturbing:
                layer.processor = processor

    return plain


def _is_pag(processor: Any) -> bool:
    return type(processor).__name__.startswith("PAG")


def _plain(processor: Any) -> Any:
    """The processor without PAG, such as `JointAttnProcessor2_0` for
    `PAGCFGJointAttnProcessor2_0`."""
    name = re.sub("^PAG(CFG)?(Identity)?(Self)?", "", type(processor).__name__)
    return getattr(attention_processor, name)()
