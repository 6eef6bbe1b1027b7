"""One denoising step as a value: all that guidance knows of a sampler."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from torch import Tensor

Perturb = Callable[[Tensor, int, Tensor | None], Tensor]
"""Maps a sample's tokens, (1 or more rows, t, ..., width), its index, and the (t,) mask of the
tokens that the network reads or None, to other tokens."""


class Level(NamedTuple):
    """A noise level: samples there are signal x0 + noise eps."""

    signal: float
    noise: float

    @property
    def ratio(self) -> float:
        """Noise to signal; infinite where there is no signal."""
        return self.noise / self.signal if self.signal else math.inf

    def mix(self, clean: Tensor, noise: Tensor) -> Tensor:
        """A sample at this level."""
        return self.signal * clean + self.noise * noise

    def noise_in(self, latents: Tensor, clean: Tensor) -> Tensor:
        """The noise that `mix` added to clean latents, for a level that has noise."""
        return (latents - self.signal * clean) / self.noise


class Prediction(NamedTuple):
    """The x0 predicted at a step, float32 or float64, and the nominal level after the step, which
    returned signal x0 + noise eps; (1, 0) after the last step of most samplers."""

    denoised: Tensor
    signal: float
    noise: float


class Denoiser(Protocol):
    """The network at the sampler's last step, which can predict again for other latents.

    Evaluations are counted per sample: a step with classifier-free guidance (CFG) takes two.
    """

    @property
    def levels(self) -> tuple[Level, Level]:
        """The noise levels before and after the step."""

    def at(self, ratio: float) -> Level:
        """The level with this noise-to-signal ratio, in the sampler's units. At most the highest
        that the network was trained at, which has no signal in some models."""

    @property
    def evaluations_per_step(self) -> float:
        """How many evaluations a step of the stock call takes, on average: 1, or 2 with CFG."""

    @property
    def denoised(self) -> Tensor:
        """(b, ...) clean latents predicted at the step, without CFG."""

    @property
    def has_prompt(self) -> bool:
        """Whether the network takes token embeddings of a prompt, which can be perturbed."""

    def settle(self, may_be_off: bool) -> bool:
        """Decide for the call whether `denoise` uses the network that the sampler's was distilled
        from, and return it. LoRAs that distilled it are switched off only if they `may_be_off`."""

    @property
    def made_by_undistilled(self) -> bool:
        """Whether that network made the step in place of the sampler's."""

    @property
    def is_joint(self) -> bool:
        """Whether the network's blocks have tokens of the prompt beside those of the image."""

    def denoise(
        self, latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
    ) -> Tensor:
        """Predict (b, ...) clean latents, without CFG.

        Args:
            latents: (b, ...) of the samples.
            level: noise level of the latents, which the schedule may skip; None is the level before
                the step.
            perturb: changes the embeddings of the prompt's tokens; None leaves them.

        Raises:
            ValueError: there is no prompt to perturb, or the network cannot predict at that level.
        """

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Let the sampler continue as if all steps so far had predicted these (b, ...) clean
        latents. Samples with NaN or infinity are left as they are."""


@dataclass(frozen=True)
class Step:
    """A denoising step that the sampler has just made. The last six attributes are for those whose
    settings need them."""

    index: int  # from 0
    count: int  # number of steps of the call
    latents: Tensor  # (b, ...) as the sampler left them
    pipeline: Any = None  # decodes latents for an `ImageSpace`
    prompts: Tensor | None = None  # (b, m) embeddings
    prediction: Prediction | None = None
    network: Denoiser | None = None
    first: Tensor | None = None  # (b, ...) latents with which the call began; None is `latents`
    scheduled: int = 0  # steps of the schedule, of which image-to-image calls make the last ones
    has_fixed_end: bool = False  # whether latents may not be changed after the call's last step

    @property
    def is_last(self) -> bool:
        return self.index >= self.count - 1

    @property
    def first_latents(self) -> Tensor:
        """(b, ...) latents with which the call began, which seed fresh noise."""
        return self.latents if self.first is None else self.first

    def with_finite_latents(self, latents: Tensor) -> "Step":
        """The step with new latents. Samples for which these are not finite keep the old ones."""
        return replace(self, latents=where_finite(latents, self.latents))


def where_finite(new: Tensor, old: Tensor) -> Tensor:
    """(b, ...) the new samples, with old ones in place of those that are not finite; old dtype."""
    finite = new.flatten(1).isfinite().all(dim=1).view(-1, *[1] * (new.ndim - 1))
    return new.to(old.dtype).where(finite, old)
