"""Another model that predicts in the rounds: the one that the sampler's was distilled from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor


@contextmanager
def predicting(guider: Any, undistilled: Any, latents: Tensor) -> Iterator[None]:
    """Meanwhile a guider evaluates another model, loaded as ComfyUI does it: beside its own where
    both fit, else one after the other.

    Args:
        guider: of the sampler.
        undistilled: a ModelPatcher, which may share its weights with the guider's, less LoRAs; or
            None for the guider's own.
        latents: that will be given to it.

    Raises:
        ValueError: it is a model of another kind.
    """
    if undistilled is None:
        yield
        return
    own, before = guider.model_patcher, guider.inner_model
    if type(undistilled.model) is not type(before):
        raise ValueError(
            f"undistilled is a model of kind {type(undistilled.model).__name__}, and the sampler's "
            f"is {type(before).__name__}: give the model that this one was distilled from"
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
    """The model of a patcher, with its weights and LoRAs on its device."""
    from comfy.sampler_helpers import prepare_sampling

    return prepare_sampling(patcher, latents.shape, guider.conds, guider.model_options)[0]
