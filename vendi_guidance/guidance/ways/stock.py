"""The way that changes nothing, and what every other way has too."""

from vendi_guidance.guidance.step import Step


class Way:
    """How one call is guided: this one leaves it as it is."""

    title = "not guided"

    def __init__(self, *_: object) -> None:
        """Other ways take the facts, or the score, and the settings."""

    def is_due(self, step: Step) -> bool:
        """Whether latents are changed after this step."""
        return False

    def on_step(self, step: Step) -> Step:
        """The step with guided latents, where that `is_due`."""
        return step

    def share_of_cfg(self, ratio: float, are_made: bool = False) -> float:
        """The share of classifier-free guidance (CFG) at a step that begins at this noise-to-signal
        ratio: a scale w becomes 1 + share (w - 1). `are_made` if rounds come before that step."""
        return 1.0

    def evaluations(self) -> int:
        """How many times `on_step` evaluates the network for each sample."""
        return 0
