"""The search for a strength: an Optuna study in which each trial is a run in its own folder.

Optuna's journal file records the trials, and several processes can append to it. A trial's images
are saved as a run, so a killed process loses at most one batch: the next process finds the trial's
lock free and continues the run.
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
from vendi_guidance.guidance.settings import DIVERSITY, Rounds
from vendi_guidance.runs.manifest import MANIFEST, Manifest
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.prompt_files import open_prompts, save_prompts

JOURNAL = "trials.journal"
PROMPTS = "prompts.jsonl"
UNGUIDED = "unguided"
STUDY = "vendi-guidance tune"

FIRST = (DIVERSITY, 1.0, 0.25, 0.75)
"""Strengths to try first. The default leads, so that the result is at least as good as it."""

LOWEST = 0.02
"""The lowest strength to try."""


@dataclass(frozen=True)
class Trial:
    """A finished trial: its strength, and how its run compares with the unguided one."""

    strength: float
    outcome: Outcome

    @classmethod
    def read(cls, attributes: dict[str, Any]) -> "Trial":
        """Read a trial from its attributes in the journal.

        Raises:
            KeyError, TypeError, ValueError: the attributes are damaged.
        """
        strength = attributes["settings"]["diversity"]
        Rounds(diversity=strength)
        return cls(strength, Outcome.read(attributes["outcome"]))


@dataclass(frozen=True)
class Search:
    """The goal and limits of a search.

    Attributes:
        keep: minimum faithfulness, as a share of the unguided run's.
        trials: maximum number of strengths to try.
        seed: seed of the search.
    """

    keep: float
    trials: int
    seed: int

    def best(self, trials: list[Trial]) -> Trial | None:
        """The most diverse trial that keeps enough faithfulness; None if none does."""
        kept = [trial for trial in trials if trial.outcome.kept >= self.keep]
        return max(kept, key=lambda trial: trial.outcome.diversity, default=None)


def begin(output: Path, manifest: Manifest, prompts: list[str]) -> None:
    """Begin a search in a folder, or continue the one in it.

    Raises:
        ValueError: the search began with other settings or prompts.
        FileExistsError: the folder holds something else.
    """
    # list the files before looking for run.json: another process may be beginning the search
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
            f"the search in {output} began with other settings: {'; '.join(differences)}; use "
            "those to continue it, or name another folder"
        )


@dataclass(eq=False)
class Tuner:
    """Runs a search in a folder that several processes may share.

    Attributes:
        runs: generates the images. Its output folder is that of the search.
        search: the goal and limits.
        judging: scores the runs.
    """

    runs: Sweep
    search: Search
    judging: Judging

    @property
    def folder(self) -> Path:
        return self.runs.options.output

    def finished(self) -> list[Trial]:
        """The finished trials of all processes."""
        optuna = _optuna()
        with self._locked():  # the first process to open the study enqueues its first trials
            complete = self._study().get_trials(states=[optuna.trial.TrialState.COMPLETE])
            return [Trial.read(trial.user_attrs) for trial in complete]

    @property
    def is_finished(self) -> bool:
        """True if no process is running a trial."""
        with self._locked():
            running = _optuna().trial.TrialState.RUNNING
            return not self._study().get_trials(deepcopy=False, states=[running])

    def run(self) -> Iterator[Trial]:
        """Run trials until there are enough or Optuna suggests a strength again; yields those that
        this process finishes.

        Raises:
            SystemExit: a signal asked to stop; the next call continues the trial.
            ValueError, OSError: a run cannot be generated.
        """
        with FileLock(self.folder / ".unguided.lock"):  # only the first process generates it
            self.runs.generate(UNGUIDED, {"diversity": 0.0})
        baseline, judged_by = self.judging.unguided(self.folder / UNGUIDED)
        while (claim := self._claim()) is not None:
            trial, lock, name, settings = claim
            try:
                self.runs.generate(name, settings)
                outcome = self.judging.outcome(self.folder / name, baseline, judged_by)
                with self._locked():
                    trial.set_user_attr("outcome", asdict(outcome))
                    trial.set_constraint("faithfulness", self.search.keep - outcome.kept)
                    self._study().tell(trial.number, outcome.diversity)
            finally:
                lock.release()
            yield Trial(settings["diversity"], outcome)

    def check(self, best: Trial, seed: int) -> Outcome:
        """How the best strength compares with no guidance, from a seed the search has not used."""
        with FileLock(self.folder / ".check.lock"):
            unguided = self.runs.generate("check-unguided", {"diversity": 0.0}, seed=seed)
            tuned = self.runs.generate("check-tuned", {"diversity": best.strength}, seed=seed)
        return self.judging.outcome(tuned, *self.judging.unguided(unguided))

    def _claim(self) -> tuple[Any, FileLock, str, dict[str, float]] | None:
        """A trial for this process: one that a killed process left, else a new one; None if there
        are enough or the new one would repeat another."""
        optuna = _optuna()
        running, complete = (optuna.trial.TrialState[name] for name in ("RUNNING", "COMPLETE"))
        with self._locked():
            study = self._study()
            started = study.get_trials(deepcopy=False, states=[complete, running])
            # seeded by the number of trials, so that an interrupted search suggests the same
            seed = self.search.seed + len(started)
            study.sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=len(FIRST))
            for other in started:
                if other.state == running:
                    with suppress(Timeout):  # its process is alive
                        return self._take(optuna.trial.Trial(study, other._trial_id))
            if len(started) >= self.search.trials:
                return None
            trial = study.ask()
            if any(suggest(trial) == other.user_attrs["settings"] for other in started):
                # the search has converged: further trials would generate the same images again
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                return None
            return self._take(trial)

    def _take(self, trial: Any) -> tuple[Any, FileLock, str, dict[str, float]]:
        """Lock a trial; returns it with its lock, folder name and settings.

        Raises:
            Timeout: another process is running it.
        """
        # earlier versions continued the folder of a killed process as a trial of another number
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
                study.enqueue_trial({"diversity": strength})
        return study

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes out of the study; an error names the journal if it is damaged."""
        with FileLock(self.folder / ".claims.lock"), warnings.catch_warnings():
            warnings.simplefilter("ignore", _optuna().exceptions.ExperimentalWarning)
            try:
                yield
            except (OSError, ImportError):
                raise
            except Exception as error:  # Optuna raises errors of every kind
                raise ValueError(
                    f"{self.folder / JOURNAL} is damaged: {reason(error)}; use another folder"
                ) from error


def suggest(trial: Any) -> dict[str, float]:
    """The settings of guidance that an Optuna trial suggests."""
    return {"diversity": round(trial.suggest_float("diversity", LOWEST, 1.0), 4)}


def _optuna() -> Any:
    optuna = optional_import("optuna", "optuna", "tune", extra="tune")
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
