"""The whole schedule of an image that several runs generate.

`KSampler (Advanced)` and *SplitSigmas* cut a schedule by slicing. A slice shares the storage of the
whole, which therefore tells the steps of the other runs.
"""

from typing import Any

from torch import Tensor

KEY = "vendi_guidance"
"""Names what is ours in ComfyUI's models."""


def keep_schedule(
    executor: Any, noise: Any, latents: Any, sampler: Any, sigmas: Any, *others: Any, **named: Any
) -> Any:
    """A wrapper of `outer_sample` (`WrappersMP.OUTER_SAMPLE`): keeps the sigmas of a
    run as they were cut. On a GPU its sampler is given a copy."""
    executor.class_obj.model_options[KEY] = sigmas  # options of this call alone
    return executor(noise, latents, sampler, sigmas, *others, **named)


def whole_schedule(sigmas: Tensor, goes_on: bool) -> tuple[Tensor, int]:
    """The schedule of an image, and the index in it at which a run begins.

    Args:
        sigmas: (steps + 1,) of the run.
        goes_on: whether an earlier run has left its noise.

    Returns:
        The run's own sigmas and 0 where nothing else is known.
    """
    first = int(sigmas.storage_offset())
    size = sigmas.untyped_storage().nbytes() // sigmas.itemsize
    if sigmas.stride() != (1,):
        return sigmas, 0
    end = first + len(sigmas) if sigmas[-1] == 0 else size
    start = 0 if goes_on else first
    whole = sigmas.as_strided((end - start,), (1,), start)
    return (whole, first - start) if (whole.diff() < 0).all() else (sigmas, 0)
