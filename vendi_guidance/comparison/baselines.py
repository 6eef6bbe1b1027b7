"""What people use today to get different images of one prompt: the baselines.

Each method is a dataclass of its settings.

Source: Kynkäänniemi et al. (NeurIPS 2024). Methods that add noise to the prompts' embeddings are in
`embedding_noise`, those that generate more images than are needed in `selection`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.comparison.network import Evaluation, evaluated_by


@dataclass(frozen=True)
class Unguided(Method):
    """Classifier-free guidance only."""


@dataclass(frozen=True)
class LimitedInterval(Method):
    """Classifier-free guidance in the middle of the steps, the conditional prediction elsewhere.

    As in the paper, the unconditional prediction is not computed where it is not needed.

    Args:
        start, stop: shares of the steps between which guidance is on. The paper gives noise levels,
            for SDXL 0.28 to 5.42: from 0.18 to 0.92 of 50 Euler steps, and from 0.28 to 0.96 of
            the 25 of the demo model.

    Raises:
        ValueError: not 0 <= start <= stop <= 1.
    """

    start: float = 0.2
    stop: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= 1:
            raise ValueError(
                "start and stop are shares of the steps, 0 <= start <= stop <= 1, "
                f"got {self.start} and {self.stop}"
            )

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        def limit(evaluation: Evaluation) -> Any:
            is_on = self.start <= evaluation.done < self.stop or call.guidance_scale <= 1
            return evaluation.output() if is_on else evaluation.output_without_cfg()

        with evaluated_by(call, limit):
            yield {}
