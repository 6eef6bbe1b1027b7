"""What is searched: the dial, or with it the expert settings."""

from typing import Any

from vendi_guidance.guidance.settings import STRENGTH

FIRST: tuple[float, ...] = (STRENGTH, 1.0, 0.25, 0.75)
"""Strengths that are tried first, the default before all: what is found is no worse than it."""

WEAKEST = 0.02

EXPERT = ("rounds", "candidates", "level", "cfg")
"""What is searched beside the dial with `--all`."""


def suggest(trial: Any, expert: bool) -> dict[str, Any]:
    """Settings by name, the dial as "strength", as an Optuna trial suggests them."""
    settings: dict[str, Any] = {"strength": trial.suggest_float("strength", WEAKEST, 1.0)}
    if expert:
        settings |= {
            "rounds": trial.suggest_int("rounds", 4, 12),
            "candidates": trial.suggest_int("candidates", 1, 3),
            "level": trial.suggest_float("level", 0.05, 0.8, log=True),
            "cfg": trial.suggest_float("cfg", 0.0, 1.0),
        }
    return {name: round(it, 4) if isinstance(it, float) else it for name, it in settings.items()}


def first_trials(expert: bool, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    """What to try before anything is known."""
    others = {name: defaults[name] for name in EXPERT} if expert else {}
    return [{"strength": strength, **others} for strength in FIRST]
