"""The trials of the comparison: a sweep on tuning prompts, and finals on the reported ones."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.comparison.candidates import CONDITIONAL, METHODS, UNCONDITIONAL, UNGUIDED, Candidate
from scripts.comparison.trials import IN_TURN, INTERLEAVED, Trial


@dataclass(frozen=True)
class Plan:
    """The trials.

    Attributes:
        candidates: what is tried; the first is the unguided.
        tuning, reported: prompts, none of them in both.
        interleaved: those of the reported that are also interleaved with their variations.
        resampled: those of the reported that are also generated with the second sampler.
        images_per_prompt: how many images of each.
        seeds: of the finals; the sweep has the first.
        samplers: the model's own, and optionally a second one for some finals.
    """

    candidates: Sequence[Candidate]
    tuning: tuple[str, ...]
    reported: tuple[str, ...]
    interleaved: tuple[str, ...]
    resampled: tuple[str, ...]
    images_per_prompt: int
    seeds: Sequence[int]
    samplers: Sequence[str]

    def sweep(self) -> list[Trial]:
        """A trial of each candidate."""
        how = (self.images_per_prompt, self.seeds[0], IN_TURN, self.samplers[0])
        return [Trial(candidate, self.tuning, *how) for candidate in self.candidates]

    def finals(self, chosen: Sequence[Candidate]) -> list[tuple[Trial, ...]]:
        """The trials of one candidate of each method, grouped by all but the seed."""
        kinds: list[tuple[tuple[str, ...], str, int, Collection[str]]] = [
            (self.reported, IN_TURN, 0, METHODS),
            (self.interleaved, INTERLEAVED, 0, (UNGUIDED, UNCONDITIONAL, CONDITIONAL)),
            (self.resampled, IN_TURN, 1, (UNGUIDED, CONDITIONAL)),
        ]
        return [
            tuple(
                Trial(
                    candidate, prompts, self.images_per_prompt, seed, protocol, self.samplers[which]
                )
                for seed in self.seeds
            )
            for prompts, protocol, which, methods in kinds
            for candidate in chosen
            if which < len(self.samplers) and candidate.method in methods
        ]

    def firsts(self) -> list[Candidate]:
        """The first candidate of each method."""
        return list({one.method: one for one in reversed(self.candidates)}.values())[::-1]


def split_prompts(file: Path, concepts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The concepts for tuning, and those of the file, which are reported on.

    Args:
        file: one concept a line.
        concepts: all that the probe knows.

    Raises:
        ValueError: a line is no such concept or occurs twice, or none is left for tuning.
        FileNotFoundError: there is no such file.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    reported = [line.strip() for line in lines if line.strip()]
    for prompt in reported:
        if prompt not in concepts:
            raise ValueError(f"the probe knows no {prompt!r}, which {file} asks for")
        if reported.count(prompt) > 1:
            raise ValueError(f"{file} asks for {prompt!r} more than once")
    tuning = [concept for concept in concepts if concept not in reported]
    if not tuning or not reported:
        raise ValueError(
            f"{file} asks for {len(reported)} of the {len(concepts)} concepts that the probe "
            "knows: some have to be asked for, and some to be left for tuning"
        )
    return tuning, reported
