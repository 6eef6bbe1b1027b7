"""`settings.json`: guidance settings for a model, as `vendi-guidance tune` finds them."""

from pathlib import Path
from typing import Any

from vendi_guidance.guidance.settings import SETTINGS, Rounds, adjusted, with_prefix
from vendi_guidance.runs.manifest import DAMAGED, read_json, write_json

FORMAT = "vendi-guidance settings"


def save_settings(path: Path, settings: dict[str, Any], about: dict[str, Any]) -> None:
    """Write settings and information about them, as JSON values."""
    write_json(path, FORMAT, {"settings": settings, "about": about})


def load_settings(path: str | Path, *, prefix: str = "diversity_") -> dict[str, Any]:
    """Read saved guidance settings as keyword arguments.

    Args:
        path: a file that `vendi-guidance tune` wrote.
        prefix: "diversity_" for the call of a guided pipeline, "" for `VendiGuidance`.

    Raises:
        ValueError: the file is not a settings file, or has an unknown setting or invalid value.
        FileNotFoundError: there is no such file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_settings(Path(folder, "settings.json"), {"diversity": 0.7}, {})
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
    if unknown := settings.keys() - SETTINGS.keys():
        raise ValueError(f"{path} has {min(unknown)!r}, which is not a guidance setting")
    try:
        adjusted(Rounds(), settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    return {with_prefix(name) if prefix else name: value for name, value in settings.items()}
