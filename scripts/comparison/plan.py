"""The trials of the comparison: a sweep on tuning prompts, and finals on the reported ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.comparison import candidates
from scripts.comparison.candidates import METHODS, OURS_DEFAULT, OURS_STRENGTHS, UNGUIDED, Candidate
from scripts.comparison.prompts import Prompts
from scripts.comparison.trials import INTERLEAVED, SAMPLERS, How, Trial

SWEEP, ABLATION = "sweep", "ablation"
FINAL, INTERLEAVED_FINAL = "final", "interleaved"
OTHER_SAMPLERS, OTHER_BATCHES = "samplers", "batches"

FURTHER_STEPS = (8, 25, 50)
FURTHER_BATCHES = (4, 1)


@dataclass(frozen=True)
class Plan:
    """The trials.

    Attributes:
        methods: of `METHODS`, with the unguided first.
        guidance_scale: of classifier-free guidance.
        tuning, reported: prompts, no concept of them in both.
        interleaved: some of the reported, whose trials have the protocol `INTERLEAVED`.
        further: some of the reported, for other samplers, steps and batch sizes.
        how: of all trials but these.
        seeds: of the unguided and of ours at its default; all others have the first.
        quick: one setting and strength of each method, and no trials but those of the curves.
    """

    methods: Sequence[str]
    guidance_scale: float
    tuning: Prompts
    reported: Prompts
    interleaved: Prompts
    further: Prompts
    how: How
    seeds: Sequence[int]
    quick: bool

    def sweep(self) -> list[Trial]:
        """A trial of the unguided and of each setting to choose from."""
        if self.quick:
            return []
        tried = candidates.sweep(self.guidance_scale, self.methods)
        return [self._trial(candidate, self.tuning) for candidate in tried]

    def ablations(self) -> dict[str, Trial]:
        """Ours with changes, on tuning prompts, by their names."""
        if self.quick or candidates.OURS not in self.methods:
            return {}
        changed = candidates.ablations(self.guidance_scale)
        return {name: self._trial(candidate, self.tuning) for name, candidate in changed.items()}

    def curves(self, settings: dict[str, dict[str, Any]]) -> list[Trial]:
        """The unguided, then every method at all its strengths.

        Args:
            settings: the other settings of methods that have a choice of them.
        """
        tried = [candidates.unguided(self.guidance_scale)]
        for method in self.methods:
            if method != UNGUIDED:
                given = settings.get(method, METHODS[method].settings[0])
                tried += candidates.curve(method, given, self.guidance_scale, self.quick)
        return [self._trial(candidate, self.reported) for candidate in tried]

    def ours(self) -> list[Candidate]:
        """Ours at its default and at its strongest, if it is compared."""
        if candidates.OURS not in self.methods:
            return []
        strengths = dict.fromkeys((OURS_DEFAULT, OURS_STRENGTHS[-1]))
        return [candidates.ours(strength, self.guidance_scale) for strength in strengths]

    def mains(self, best_other: Candidate) -> list[Candidate]:
        """The candidates that are shown, and drawn interleaved."""
        found = [candidates.unguided(self.guidance_scale)]
        found += [one for one in (best_other, *self.ours()) if one not in found]
        return found

    def further_seeds(self) -> list[Trial]:
        """The trials of the unguided and of ours at its default that their curves do not have."""
        repeated = [candidates.unguided(self.guidance_scale), *self.ours()[:1]]
        return [
            self._trial(one, self.reported, seed=seed)
            for one in repeated
            for seed in self.seeds[1:]
        ]

    def others(self, mains: Sequence[Candidate]) -> dict[str, list[Trial]]:
        """The remaining finals by their kinds: interleaved, and with other samplers, numbers of
        steps and batch sizes."""
        if self.quick:
            return {}
        ours = self.ours()[:1]
        hows: list[dict[str, Any]] = [{}]
        hows += [{"steps": steps} for steps in FURTHER_STEPS if steps != self.how.steps]
        hows += [{"sampler": name} for name in SAMPLERS if name != self.how.sampler]
        open_ones = Prompts(self.further.open)
        return {
            INTERLEAVED_FINAL: [
                self._trial(one, self.interleaved, protocol=INTERLEAVED) for one in mains
            ],
            OTHER_SAMPLERS: [
                self._trial(one, self.further, **how) for one in [mains[0], *ours] for how in hows
            ],
            OTHER_BATCHES: [
                self._trial(one, open_ones, batch_size=size)
                for one in ours
                for size in (self.how.batch_size, *FURTHER_BATCHES)
            ],
        }

    def _trial(
        self, candidate: Candidate, prompts: Prompts, seed: int | None = None, **how: Any
    ) -> Trial:
        seed = self.seeds[0] if seed is None else seed
        return Trial(candidate, prompts.all, seed, self.how._replace(**how))
