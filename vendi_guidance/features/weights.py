"""Finds the weights of embedders, in a folder or on the hub, and checks that they are complete."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from vendi_guidance.storage.messages import first_few

SETTINGS = ["*.json", "*.txt", "*.model"]
"""Files needed besides the weights: configurations, vocabularies and sentencepiece tokenizers."""

LONGEST = 500  # maximum length of a library's message that is quoted in ours, in characters
_PATCHED = RLock()  # held while `all_weights` patches classes, which all threads share


def model_folder(name: str, weights: str = "*.safetensors") -> Path:
    """The folder of a model: `name`, or a repository on the hub, downloaded if necessary.
    FileNotFoundError, which says how to fetch or convert it, if it or its `weights` are missing."""
    folder, command = Path(name), ""
    if folder.is_file():
        raise FileNotFoundError(f"{name} is a file: name the folder of a model")
    if not folder.is_dir():
        wanted = [f"--include={pattern}" for pattern in [weights, *SETTINGS]]
        command = fetching(name, *wanted)
        try:
            folder = Path(snapshot_download(name, allow_patterns=[weights, *SETTINGS]))
        except HFValidationError:
            raise FileNotFoundError(f"there is no folder {name}") from None
        except (HfHubHTTPError, OSError) as error:
            raise not_found(name, error, name, *wanted) from error
    if any(folder.glob(weights)):
        return folder
    problem = f"there is no {weights} in {folder}"
    if command:
        problem += f": {command}"
    if weights.endswith(".safetensors"):
        problem += f"; pickled weights are not read: {conversion(weights.replace('*', 'model'))}"
    raise FileNotFoundError(problem)


def not_found(name: str, error: Exception, *words: str) -> FileNotFoundError:
    """The error for a name that is neither on disk nor on the hub, which raised `error`; `words`
    are what `hf download` fetches it by."""
    return FileNotFoundError(
        f"{name} is neither on this disk nor in the cache of the Hugging Face hub, and cannot be "
        f"downloaded ({reason(error)}): on a machine with a network, {fetching(*words)}"
    )


def fetching(*words: str) -> str:
    """The command that fetches a model, for error messages."""
    return f"fetch it by `{shlex.join(['hf', 'download', *words])}`"


def conversion(target: str) -> str:
    """Instructions for error messages: convert pickled weights to the safetensors `target`."""
    return (
        "convert them in Python: `import torch, safetensors.torch as st` and "
        f"`st.save_file(torch.load(FILE, weights_only=True), {target!r})`"
    )


def reason(error: BaseException) -> str:
    """The first line of an error's message, with the second if it ends in a colon; truncated."""
    line, *rest = str(error).splitlines() or [type(error).__name__]
    if line.endswith(":") and rest:  # torch lists missing weights in the second line
        line = f"{line} {rest[0].strip()}"
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


@contextmanager
def all_weights(*kinds: Any, unless: tuple[str, ...] = ()) -> Iterator[None]:
    """Context in which loading a model fails if its files lack weights, which transformers and
    diffusers by default initialize randomly and only log.

    Checks `from_pretrained` of these base classes, including calls by libraries; weights whose
    names start with `unless` may be missing. ValueError names the model's folder and missing ones.
    """
    with _PATCHED, ExitStack() as stack:
        for kind in kinds:
            stack.callback(setattr, kind, "from_pretrained", vars(kind)["from_pretrained"])
            kind.from_pretrained = _checked(kind, unless)
        yield


def _checked(kind: type, unless: tuple[str, ...]) -> Any:
    load: Callable[..., Any] = vars(kind)["from_pretrained"].__func__
    library = kind.__module__.partition(".")[0]

    def from_pretrained(cls: type, source: Any, *args: Any, **options: Any) -> Any:
        wants_info = options.pop("output_loading_info", False)
        model, info = load(cls, source, *args, output_loading_info=True, **options)
        missing = sorted(name for name in info["missing_keys"] if not name.startswith(unless))
        if missing:
            raise ValueError(
                f"{Path(source, options.get('subfolder') or '')} lacks the weights "
                f"{first_few(missing)} of its {cls.__name__}: its files are incomplete "
                f"(fetch them again), or {library} {version(library)} cannot read them (update it)"
            )
        return (model, info) if wants_info else model

    return classmethod(from_pretrained)
