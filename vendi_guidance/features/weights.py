"""Where the weights of embedders lie: a folder, or the Hugging Face hub and its cache."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

SAFETENSORS = ["*.safetensors"]

SETTINGS = ["*.json", "*.txt", "*.model"]
"""What lies beside weights: configurations, vocabularies, and tokenizers of sentencepiece."""


def model_folder(name: str, weights: Sequence[str] = SAFETENSORS) -> Path:
    """The folder with the files of a model, which are fetched where they are not at hand.

    Args:
        name: a folder, or else a repository of the hub, such as "facebook/dinov2-base".
        weights: patterns for the files without which it is no model; the first that is there
            counts.

    Raises:
        FileNotFoundError: there is neither such a folder nor, in reach, such a repository, or it
            holds no weights; the message says how to fetch them.
    """
    folder = Path(name)
    if folder.is_dir():
        if not _holds(folder, weights):
            raise FileNotFoundError(f"there is no {' or '.join(weights)} in {folder}")
        return folder
    wanted = (f"--include={pattern}" for pattern in [*weights, *SETTINGS])
    command = shlex.join(["hf", "download", name, *wanted])
    for pattern in weights:
        try:
            folder = Path(snapshot_download(name, allow_patterns=[pattern, *SETTINGS]))
        except HFValidationError:
            raise FileNotFoundError(f"there is no folder {name}") from None
        except (HfHubHTTPError, OSError) as error:
            raise FileNotFoundError(
                f"there is no folder {name}, and no model of that name in the cache of the Hugging "
                f"Face hub, which did not give it ({reason(error)}): where there is a network, "
                f"fetch it by `{command}`"
            ) from error
        if _holds(folder, weights):
            return folder
    raise FileNotFoundError(
        f"of {name}, the Hugging Face hub or its cache has no {' or '.join(weights)}: fetch it by "
        f"`{command}`"
    )


def _holds(folder: Path, patterns: Sequence[str]) -> bool:
    return any(any(folder.glob(pattern)) for pattern in patterns)


def reason(error: BaseException) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).splitlines()), type(error).__name__)
