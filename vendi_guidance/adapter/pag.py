"""Perturbed-attention guidance (PAG; Ahn et al., ECCV 2024) left out of an evaluation.

PAG pipelines append rows to each batch, for which some layers skip self-attention. During a call,
these layers have attention processors that split a batch into its parts, and so cannot evaluate the
rows of the prompts alone.
"""

import re
from collections.abc import Callable
from typing import Any

from diffusers.models import attention_processor
from torch import nn


def has_pag(pipeline: Any) -> bool:
    """Whether PAG is on in the pipeline's call."""
    return bool(getattr(pipeline, "do_perturbed_attention_guidance", False))


def without_pag(network: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """A network's `forward` with ordinary attention in the layers that PAG perturbs."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        layers: list[Any] = [it for it in network.modules() if hasattr(it, "processor")]
        processors = [(layer, layer.processor) for layer in layers]
        perturbing = [pair for pair in processors if type(pair[1]).__name__.startswith("PAG")]
        try:
            for layer, processor in perturbing:
                # such as PAGCFGJointAttnProcessor2_0 and JointAttnProcessor2_0
                name = re.sub("^PAG(CFG)?(Identity)?(Self)?", "", type(processor).__name__)
                layer.processor = getattr(attention_processor, name)()
            return forward(*args, **kwargs)
        finally:
            for layer, processor in perturbing:
                layer.processor = processor

    return plain
