"""What guidance keeps between calls: finished samples, exemplars, the prompt bandwidth."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import SIGMA_PROMPT, Settings
from vendi_guidance.guidance.window import Finished, SlidingWindow
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.rounding import exact_ones
from vendi_guidance.scores.bandwidth import median_distance

logger = logging.getLogger(__name__)

PROMPTS_TO_SETTLE = 10
"""Number of different prompts after which the automatic prompt bandwidth is fixed."""

LASTING = ("session", "call")
"""How long finished samples are remembered: the values of the user's `memory` argument."""


def check_lasting(memory: str) -> None:
    """Raise ValueError for a word that is not in `LASTING`."""
    if memory not in LASTING:
        raise ValueError(f"memory must be one of {', '.join(LASTING)}, got {memory!r}")


class Memory:
    """What guidance keeps between calls; `sigma_prompt` is None until it is fixed."""

    def __init__(self, window: int | SlidingWindow, exemplars: Tensor | None = None) -> None:
        self.window = window if isinstance(window, SlidingWindow) else SlidingWindow(window)
        self.exemplars = None if exemplars is None else _exemplar_window(exemplars)
        self.sigma_prompt: float | None = None
        self._skipped = 0
        self._uncounted: list[Tensor] = []
        self._has_warned = False
        self._held: list[Finished] | None = None

    @property
    def skipped(self) -> int:
        """Number of guidance steps, one per sample, and of finished samples lost to NaN or inf."""
        read, self._uncounted = self._uncounted, []
        if read:
            finite = torch.cat([it.flatten().to(read[0].device) for it in read])
            self._skipped += int(finite.logical_not().sum())
        return self._skipped

    @isolated()
    def add(self, features: Tensor, prompts: Tensor | None) -> None:
        """Remember finished samples, except those with NaN or infinity."""
        finite = torch.isfinite(as_rows(features)).all(dim=1)
        if prompts is not None:
            finite &= torch.isfinite(prompts).all(dim=1).to(finite.device)
            prompts = prompts[finite.to(prompts.device)]
        self.count_skipped(finite)
        # the call is over, so waiting for the device costs nothing
        if self.skipped and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "NaN or infinity in latents, prompts or gradient: %d guidance steps were skipped, "
                "and the samples concerned are not remembered. Half precision is a common cause.",
                self._skipped,
            )
        if finite.any():
            self.commit([(features[finite], prompts)])

    def commit(self, finished: list[Finished]) -> None:
        """Add samples to the window, or to the list of `holding`."""
        for features, prompts in finished:
            if self._held is None:
                self.window.append(features, prompts)
            else:
                self.window.of_shape(features.shape[1:]).check(features, prompts)
                self._held.append((features, prompts))

    @contextmanager
    def holding(self) -> Iterator[list[Finished]]:
        """While this context lasts, finished samples go to the list that it yields."""
        outer, self._held = self._held, []
        try:
            yield self._held
        finally:
            self._held = outer

    def count_skipped(self, finite: Tensor) -> None:
        """Count the samples that a step skipped: those where `finite`, (b,), is False."""
        self._uncounted.append(finite)  # counted once a call, since that waits for the device

    @isolated()
    def score(self, settings: Settings, prompts: Tensor | None) -> Score:
        """The score of a call; prompts are (b, m), or None where they are not compared."""
        return Score(
            settings.build_objective(self._bandwidth(settings, prompts)),
            settings.build_space(),
            self.window,
            self.exemplars,
            settings.beta,
            self.count_skipped,
        )

    def _bandwidth(self, settings: Settings, prompts: Tensor | None) -> float:
        """The prompt bandwidth: as set, or found from (b, m) prompts and those in the window."""
        given = settings.sigma_prompt or self.sigma_prompt
        if given is not None or prompts is None or not settings.is_conditional:
            return given or SIGMA_PROMPT
        unit = unit_rows(as_rows(prompts.cpu()))  # one wait for the device in place of many
        known = self.window.prompts
        if known is None or known.shape[1:] != unit.shape[1:]:
            known = unit[:0]
        seen = torch.cat([unit, known.to(unit)])
        seen = seen[seen.isfinite().all(dim=1)]
        copies = exact_ones(seen @ seen.T, seen.shape[1]).tril_(-1) == 1
        distinct = seen[~copies.any(dim=1)].mul(1e4).round().unique(dim=0) / 1e4
        if len(distinct) < 2:
            return SIGMA_PROMPT  # with one prompt every bandwidth gives the same
        sigma = SIGMA_PROMPT * median_distance(distinct)
        if len(distinct) >= PROMPTS_TO_SETTLE:
            self.sigma_prompt = sigma
            logger.info("prompt bandwidth fixed at %.3g", sigma)
        return sigma


def _exemplar_window(exemplars: Tensor) -> SlidingWindow:
    if not isinstance(exemplars, Tensor) or exemplars.ndim < 2 or not len(exemplars):
        got = f"shape {tuple(exemplars.shape)}" if isinstance(exemplars, Tensor) else "no tensor"
        raise ValueError(
            f"exemplars must be a tensor (n, ...), n >= 1, as of exemplar_features, got {got}"
        )
    if not exemplars.isfinite().all():
        raise ValueError("exemplars hold NaN or infinity: leave those rows out")
    window = SlidingWindow(len(exemplars))
    window.append(exemplars)
    return window
