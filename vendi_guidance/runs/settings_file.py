"""`settings.json`: guidance settings for a model, as `vendi-guidance tune` finds them."""

from pathlib import Path
from typing import Any

from vendi_guidance.guidance.settings import SETTINGS, Rounds
from vendi_guidance.runs.manifest import DAMAGED, read_json, write_json

FORMAT = "vendi-guidance settings"


def save_settings(path: Path, settings: dict[str, Any], about: dict[str, Any]) -> None:
    """Write settings (with the dial as "strength") and information about them, as JSON values."""
    write_json(path, FORMAT, {"settings": settings, "about": about})


def load_settings(path: str | Path, *, prefix: str = "diversity_") -> dict[str, Any]:
    """Read saved guidance settings as keyword arguments.

    Args:
        path: a file that `vendi-guidance tune` wrote.
        prefix: "diversity_" for the call of a guided pipeline, whose dial is `diversity`; "" for
            `VendiGuidance`, whose dial is `strength`.

    Raises:
        ValueError: the file is not a settings file, or has an unknown setting or invalid value.
        FileNotFoundError: there is no such file.

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
        raise ValueError(f"{path} is not a file of guidance settings: {error}") from None
    if unknown := settings.keys() - {"strength", *SETTINGS}:
        raise ValueError(f"{path} has {min(unknown)!r}, which is not a guidance setting")
    try:
        Rounds().changed(**settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    names = {"strength": "diversity"} if prefix else {}
    return {names.get(name, prefix + name): value for name, value in settings.items()}
