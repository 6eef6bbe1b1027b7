"""The search for settings: an Optuna study whose trials are runs in folders of their own.

Optuna's journal file says what was tried, and several processes can append to it. A trial's images
are a run in a folder, so a process that is killed loses at most a batch: whoever comes next finds
the trial's lock free and goes on with its run.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vendi_guidance.checks import optional_import
from vendi_guidance.evaluation.judging import Judging, Outcome
from vendi_guidance.features.weights import reason
from vendi_guidance.guidance.settings import STRENGTH, Rounds
from vendi_guidance.runs.manifest import MANIFEST, Manifest
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts

JOURNAL = "trials.journal"
PROMPTS = "prompts.jsonl"
UNGUIDED = "unguided"
STUDY = "vendi-guidance tune"

FIRST = (STRENGTH, 1.0, 0.25, 0.75)
"""Strengths that are tried first, the default before all: what is found is no worse than it."""

WEAKEST = 0.02


@dataclass(frozen=True)
class Trial:
    """A finished trial: a strength, and how its run compares with the unguided one."""

    strength: float
    outcome: Outcome

    @classmethod
    def read(cls, attributes: dict[str, Any]) -> "Trial":
        """From what the journal says of it.

        Raises:
            KeyError, TypeError, ValueError: these are JSON values of other kinds.
        """
        strength = attributes["settings"]["strength"]
        Rounds(strength=strength)
        return cls(strength, Outcome.read(attributes["outcome"]))


@dataclass(frozen=True)
class Search:
    """What is searched for.

    Attributes:
        keep: the least share of the unguided run's faithfulness.
        trials: how many strengths to try.
        seed: of the search.
    """

    keep: float
    trials: int
    seed: int

    def best(self, trials: list[Trial]) -> Trial | None:
        """The most diverse that keeps enough; None if none does."""
        kept = [one for one in trials if one.outcome.kept >= self.keep]
        return max(kept, key=lambda one: one.outcome.diversity, default=None)


def begin(output: Path, manifest: Manifest, prompts: list[str]) -> None:
    """Begin a search in a folder, or go on with the one in it.

    Raises:
        ValueError: it began otherwise.
        FileExistsError: the folder holds something else.
    """
    # listed first: another process may be beginning the search, which locks, then says run.json
    visible = [path for path in output.glob("*") if path.name[0] != "."]
    if visible and not (output / MANIFEST).is_file():
        raise FileExistsError(f"--output {output} is not empty and has no search: name another")
    output.mkdir(parents=True, exist_ok=True)
    with FileLock(output / ".claims.lock"):
        if not (output / MANIFEST).is_file():
            manifest.save(output)
        differences = manifest.differences(Manifest.load(output))
        if not (output / PROMPTS).is_file():
            save_prompts(output / PROMPTS, prompts)
        if not differences and list(open_prompts(str(output / PROMPTS))) != prompts:
            differences = ["PROMPTS has other prompts"]
    if differences:
        raise ValueError(
            f"the search in {output} began with other settings: {'; '.join(differences)}; go on "
            "with the settings that it began with, or name another folder"
        )


@dataclass(eq=False)
class Tuner:
    """Generates, judges and searches, in a folder that other processes may work in too.

    Attributes:
        runs: with the model, prompts and images per prompt. Their folder is the search's.
    """

    runs: Sweep
    search: Search
    judging: Judging

    @property
    def folder(self) -> Path:
        return self.runs.options.output

    def finished(self) -> list[Trial]:
        """The trials that are finished, by all processes."""
        optuna = _optuna()
        with self._locked():  # the first to read the study puts its first trials there
            complete = self._study().get_trials(states=[optuna.trial.TrialState.COMPLETE])
            return [Trial.read(one.user_attrs) for one in complete]

    @property
    def is_finished(self) -> bool:
        """Whether no process is at work on a trial."""
        with self._locked():
            running = _optuna().trial.TrialState.RUNNING
            return not self._study().get_trials(deepcopy=False, states=[running])

    def run(self) -> Iterator[Trial]:
        """Try settings until there are enough trials, or nothing new is suggested; yields each one
        of this process.

        Raises:
            SystemExit: a signal asked to stop; the trial goes on next time.
            ValueError, OSError: a run cannot be made.
        """
        with FileLock(self.folder / ".unguided.lock"):  # the first process makes it
            self.runs.generate(UNGUIDED, {"strength": 0.0})
        baseline, judged_by = self.judging.unguided(self.folder / UNGUIDED)
        while (claimed := self._claim()) is not None:
            trial, lock, name, settings = claimed
            try:
                self.runs.generate(name, settings)
                outcome = self.judging.outcome(self.folder / name, baseline, judged_by)
                with self._locked():
                    trial.set_user_attr("outcome", asdict(outcome))
                    trial.set_constraint("faithfulness", self.search.keep - outcome.kept)
                    self._study().tell(trial.number, outcome.diversity)
            finally:
                lock.release()
            yield Trial(settings["strength"], outcome)

    def check(self, best: Trial, seed: int) -> Outcome:
        """How a strength does from a seed on that the search has not seen."""
        with FileLock(self.folder / ".check.lock"):
            plain, tuned = (
                self.runs.generate(name, {"strength": strength}, seed=seed)
                for name, strength in (("check-unguided", 0.0), ("check-tuned", best.strength))
            )
        return self.judging.outcome(tuned, *self.judging.unguided(plain))

    def _claim(self) -> tuple[Any, FileLock, str, dict[str, float]] | None:
        """A trial for this process: one that a killed process left, else a new one; None when
        there were enough, or the next one would be one of them."""
        optuna = _optuna()
        running, complete = (optuna.trial.TrialState[name] for name in ("RUNNING", "COMPLETE"))
        with self._locked():
            study = self._study()
            used = study.get_trials(deepcopy=False, states=[complete, running])
            # depends on the seed and on what was tried, not on whether the search was interrupted
            seed = self.search.seed + len(used)
            study.sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=len(FIRST))
            for left in used:
                if left.state == running:
                    with suppress(Timeout):  # its process is at work
                        return self._take(optuna.trial.Trial(study, left._trial_id))
            if len(used) >= self.search.trials:
                return None
            trial = study.ask()
            if any(suggest(trial) == one.user_attrs["settings"] for one in used):
                # what is best is known: the rest of the budget would generate the same again
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                return None
            return self._take(trial)

    def _take(self, trial: Any) -> tuple[Any, FileLock, str, dict[str, float]]:
        """A trial with its lock, its folder's name and its settings.

        Raises:
            Timeout: another process is at work on it.
        """
        # earlier versions went on with a killed process's folder in a trial of another number
        name = trial.user_attrs.get("folder", f"trial-{trial.number:03d}")
        settings = trial.user_attrs.get("settings", suggest(trial))
        lock = FileLock(self.folder / f".{name}.lock")
        lock.acquire(timeout=0)
        trial.set_user_attr("settings", settings)
        trial.set_user_attr("folder", name)
        return trial, lock, name, settings

    def _study(self) -> Any:
        optuna = _optuna()
        from optuna.storages.journal import JournalFileBackend

        backend = JournalFileBackend(str(self.folder / JOURNAL))
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=STUDY,
            direction="maximize",
            load_if_exists=True,
        )
        if not study.get_trials(deepcopy=False):
            for strength in FIRST:
                study.enqueue_trial({"strength": strength})
        return study

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from claiming trials; name the journal if it is damaged."""
        with FileLock(self.folder / ".claims.lock"), warnings.catch_warnings():
            warnings.simplefilter("ignore", _optuna().exceptions.ExperimentalWarning)
            try:
                yield
            except (OSError, ImportError):
                raise
            except Exception as error:  # Optuna raises errors of every kind
                raise ValueError(
                    f"{self.folder / JOURNAL} is damaged: {reason(error)}; begin in another folder"
                ) from error


def suggest(trial: Any) -> dict[str, float]:
    """What an Optuna trial suggests, as settings of guidance."""
    return {"strength": round(trial.suggest_float("strength", WEAKEST, 1.0), 4)}


def _optuna() -> Any:
    optuna = optional_import("optuna", "optuna", "tune", extra="tune")
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
