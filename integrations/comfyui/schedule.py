"""The whole schedule of an image that several runs generate.

`KSampler (Advanced)` and *SplitSigmas* slice a schedule. A slice shares the storage of the whole
tensor, so the steps of the other runs can be read from it.
"""

from typing import Any

from torch import Tensor

KEY = "vendi_guidance"
"""Key of our wrappers and options in ComfyUI's models."""


def keep_schedule(
    executor: Any, noise: Any, latents: Any, sampler: Any, sigmas: Any, *others: Any, **named: Any
) -> Any:
    """A wrapper of `outer_sample` (`WrappersMP.OUTER_SAMPLE`) that keeps a run's original sigmas:
    on a GPU the sampler gets a copy."""
    executor.class_obj.model_options[KEY] = sigmas  # these options belong to this call alone
    return executor(noise, latents, sampler, sigmas, *others, **named)


def whole_schedule(sigmas: Tensor, is_continued: bool) -> tuple[Tensor, int]:
    """The whole schedule of an image, and the index at which a run begins.

    Args:
        sigmas: (steps + 1,) sigmas of the run.
        is_continued: whether the latents contain noise left by an earlier run.

    Returns:
        The schedule and the index; the run's own sigmas and 0 if there is no larger schedule.
    """
    first = int(sigmas.storage_offset())
    size = sigmas.untyped_storage().nbytes() // sigmas.itemsize
    if sigmas.stride() != (1,):
        return sigmas, 0
    end = first + len(sigmas) if sigmas[-1] == 0 else size
    start = 0 if is_continued else first
    whole = sigmas.as_strided((end - start,), (1,), start)
    return (whole, first - start) if (whole.diff() < 0).all() else (sigmas, 0)
