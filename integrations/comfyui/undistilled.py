"""Evaluates another model in the rounds: the one that the sampler's model was distilled from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor


@contextmanager
def model_swapped(guider: Any, undistilled: Any, latents: Tensor) -> Iterator[None]:
    """Make a guider evaluate another model while the context lasts. ComfyUI loads it: beside the
    guider's own model if both fit in memory, else in its place.

    Args:
        guider: the sampler's guider.
        undistilled: a ModelPatcher, which may share the weights of the guider's own, without its
            LoRAs; None keeps the guider's own.
        latents: latents of the shape that the model will be given.

    Raises:
        ValueError: the two models are of different classes.
    """
    if undistilled is None:
        yield
        return
    own, before = guider.model_patcher, guider.inner_model
    if type(undistilled.model) is not type(before):
        raise ValueError(
            f"undistilled is a {type(undistilled.model).__name__}, but the sampler's model is a "
            f"{type(before).__name__}: connect the model that this one was distilled from"
        )
    try:
        guider.inner_model = _load(undistilled, guider, latents)
        undistilled.pre_run()
        yield
    finally:
        undistilled.cleanup()
        guider.inner_model = _load(own, guider, latents)
        guider.inner_model.current_patcher = own


def _load(patcher: Any, guider: Any, latents: Tensor) -> Any:
    """Load a patcher's model, with its weights and LoRAs, onto its device."""
    from comfy.sampler_helpers import prepare_sampling

    return prepare_sampling(patcher, latents.shape, guider.conds, guider.model_options)[0]
