"""`settings.json`: settings of guidance that suit a model, as `vendi-guidance tune` finds them."""

from pathlib import Path
from typing import Any

from vendi_guidance.guidance.settings import SETTINGS, Rounds
from vendi_guidance.runs.manifest import DAMAGED, read_json, write_json

FORMAT = "vendi-guidance settings"


def save_settings(path: Path, settings: dict[str, Any], about: dict[str, Any]) -> None:
    """Write settings by name, the dial as "strength", and what is known about them, JSON values."""
    write_json(path, FORMAT, {"settings": settings, "about": about})


def load_settings(path: str | Path, *, prefix: str = "diversity_") -> dict[str, Any]:
    """Settings that were saved, as arguments of a guided pipeline's call.

    Args:
        path: a file that `vendi-guidance tune` wrote.
        prefix: "diversity_" for pipelines, whose dial is `diversity`; "" for `VendiGuidance`, whose
            dial is `strength`.

    Raises:
        ValueError: it is no such file, or has a setting or value that does not exist.
        FileNotFoundError: there is no file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_settings(Path(folder, "settings.json"), {"strength": 0.7}, {})
        ...     load_settings(Path(folder, "settings.json"))
        {'diversity': 0.7}
        >>> images = pipe(prompts, **load_settings("settings.json")).images  # doctest: +SKIP
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        settings = dict(read_json(path, FORMAT)["settings"])
    except DAMAGED as error:
        raise ValueError(f"{path} holds no settings of guidance: {error}") from None
    known = {"strength", *SETTINGS}
    if unknown := settings.keys() - known:
        raise ValueError(f"{path} has {min(unknown)!r}, which is no setting of guidance")
    try:
        Rounds().changed(**settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    names = {"strength": "diversity"} if prefix else {}
    return {names.get(name, prefix + name): value for name, value in settings.items()}
