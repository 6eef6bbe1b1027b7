"""What guidance does in one call of a sampler, in diffusers, ComfyUI or elsewhere."""

import logging

import torch

from vendi_guidance.guidance.choose import ALONE, choose
from vendi_guidance.guidance.facts import Facts
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Published, Rounds
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.ways.own_steps import OwnSteps
from vendi_guidance.guidance.ways.published import AsPublished
from vendi_guidance.guidance.ways.stock import Way

logger = logging.getLogger(__name__)


class Engine:
    """Guidance of one call.

    Args:
        settings: the call's settings.
        memory: the finished samples; one memory may serve many calls.

    Attributes:
        facts, way: of the call; None until its first step with a `network` is seen. There `choose`
            decides, once.
        why: in plain words, why the call is guided so.
        why_off: why this call is not guided although the settings ask for it, or None.

    Example:
        >>> import torch
        >>> settings = Published(objective="rke", scale=0.1)
        >>> engine = Engine(settings, Memory(window=9))
        >>> step = Step(index=0, count=2, latents=torch.randn(4, 3, 8, 8))
        >>> if engine.observe(step):
        ...     step = engine.modify(step)
        >>> engine.remember(step)
        >>> len(engine.memory.window)
        4
    """

    def __init__(self, settings: Rounds | Published, memory: Memory) -> None:
        self.settings = settings
        self.memory = memory
        self.facts: Facts | None = None
        self.way: Way | None = Way() if settings.is_off else None
        self.why = "diversity is 0"
        self.why_off: str | None = None

    def __str__(self) -> str:
        """How the call is guided, why, and the facts that decided it."""
        title = "undecided" if self.way is None else self.way.title
        return f"{title}: {self.why}" + ("" if self.facts is None else f"\n{self.facts}")

    @torch.no_grad()
    def observe(self, step: Step, is_continued: bool = False) -> bool:
        """Look at a step, and return whether it `is_due`. The first one with its `network` decides
        how the call is guided; see `Facts.is_continued`."""
        is_known = step.network is not None or isinstance(self.settings, Published)
        if self.way is None and is_known:
            self._decide(step, is_continued)
        return self.is_due(step)

    def _decide(self, step: Step, is_continued: bool = False) -> Way:
        score = self.memory.score(self.settings, step.prompts)
        if isinstance(self.settings, Published):
            self.way, self.why = AsPublished(score, self.settings), "the settings ask for it"
            return self.way
        self.facts = Facts.of(step, score, self.settings, is_continued)
        self.way, self.why, leaf = choose(self.facts, self.settings)
        if leaf.way is Way and leaf is not ALONE:
            self.why_off = self.why
        logger.info("%s: %s", self.way.title, self.why)
        return self.way

    @property
    def guides_own_steps(self) -> bool:
        """Whether samples are moved at the call's own steps."""
        return isinstance(self.way, OwnSteps)

    def is_due(self, step: Step) -> bool:
        """Whether latents are to be changed after this step."""
        if self.way is None or (step.is_last and step.has_fixed_end):
            return False
        return self.way.is_due(step)

    @torch.no_grad()
    def modify(self, step: Step) -> Step:
        """The step with guided latents. ValueError if the samples do not fit the memory's, or
        rounds cannot be made; RuntimeError if they need a network that the step does not have."""
        return (self.way or self._decide(step)).on_step(step)

    def remember(self, step: Step) -> None:
        """Add the finite samples of a call's last step to the memory."""
        features = self.settings.build_space().remember(step.pipeline, step.latents)
        self.memory.add(features, step.prompts)
