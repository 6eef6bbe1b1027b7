"""Where the weights of embedders come from: a folder, or the hub."""

import shlex
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

SETTINGS = ["*.json", "*.txt", "*.model"]
"""Files beside the weights: configurations, vocabularies and tokenizers of sentencepiece."""

LONGEST = 500
"""Characters of a library's message that are passed on."""


def model_folder(name: str, weights: str = "*.safetensors") -> Path:
    """The folder with a model's files, downloaded to the Hugging Face hub's cache if need be.

    Args:
        name: a folder, or else a repository on the hub, such as "facebook/dinov2-base".
        weights: pattern of a file that must be there.

    Raises:
        FileNotFoundError: there is no such folder or repository, or it has no such file; the
            message says how to fetch or convert it.
    """
    folder, command = Path(name), ""
    if not folder.is_dir():
        wanted = (f"--include={pattern}" for pattern in [weights, *SETTINGS])
        command = f"fetch it by `{shlex.join(['hf', 'download', name, *wanted])}`"
        try:
            folder = Path(snapshot_download(name, allow_patterns=[weights, *SETTINGS]))
        except HFValidationError:
            raise FileNotFoundError(f"there is no folder {name}") from None
        except (HfHubHTTPError, OSError) as error:
            raise FileNotFoundError(
                f"{name} is neither a folder nor in the cache of the Hugging Face hub, and the hub "
                f"cannot be reached or has no such model ({reason(error)}): on a machine with a "
                f"network, {command}"
            ) from error
    if any(folder.glob(weights)):
        return folder
    problem = f"there is no {weights} in {folder}"
    if command:
        problem += f": {command}"
    if weights.endswith(".safetensors"):
        problem += f"; pickled weights are not read: {conversion(weights.replace('*', 'model'))}"
    raise FileNotFoundError(problem)


def conversion(target: str) -> str:
    """How to convert pickled weights to the safetensors file `target`, for error messages."""
    return (
        "convert them in Python: `import torch, safetensors.torch as st` and "
        f"`st.save_file(torch.load(FILE, weights_only=True), {target!r})`"
    )


def reason(error: BaseException) -> str:
    """The first line of an error's message, cut where it is long."""
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
