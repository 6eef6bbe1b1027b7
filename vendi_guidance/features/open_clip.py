"""CLIPs and SigLIPs by OpenCLIP, from folders or the Hugging Face hub."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from vendi_guidance.features.weights import model_folder, reason

DEFAULT = "ViT-B-32/openai"
WEIGHTS = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
CONFIG = "open_clip_config.json"


@dataclass(frozen=True)
class OpenClip:
    """A loaded model.

    Attributes:
        name: what was asked for.
        source: what OpenCLIP calls it.
        model: with `visual` and `encode_text`.
        transform: its preprocessing of pictures.
        preprocessing: the transform's settings, JSON values.
    """

    name: str
    source: str
    model: Any
    transform: Callable[[Image.Image], Tensor]
    preprocessing: dict[str, Any]

    def tokenizer(self) -> Any:
        """Texts to (n, context_length) tokens, cut off there."""
        import open_clip

        return open_clip.get_tokenizer(self.source)


def load_open_clip(which: str) -> OpenClip:
    """A model and its preprocessing.

    Args:
        which: `MODEL/PRETRAINED` or `MODEL` as `open_clip.list_pretrained` names them (without
            PRETRAINED, the first of them), `hf-hub:NAME`, or a folder with OpenCLIP's
            configuration; empty is OpenAI's ViT-B-32.

    Raises:
        ValueError: OpenCLIP does not know it.
        FileNotFoundError: the weights are not here; the message says how to fetch them.
        ImportError: OpenCLIP is not installed.
    """
    try:
        import open_clip
    except ImportError:
        raise ImportError("CLIP needs OpenCLIP: pip install open_clip_torch") from None
    name = (which or DEFAULT).removeprefix("local-dir:")
    if Path(name).is_dir():
        source, tag = f"local-dir:{model_folder(name, [CONFIG])}", None
    elif name.startswith("hf-hub:"):
        folder = model_folder(name.removeprefix("hf-hub:"), WEIGHTS)
        source, tag = f"local-dir:{folder}", None
    else:
        name = _listed(name, open_clip)
        source, tag = _at_hand(name, open_clip)
    try:
        model, _, transform = open_clip.create_model_and_transforms(
            source, tag, require_pretrained=True
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"OpenCLIP cannot load {name}: {reason(error)}") from error
    return OpenClip(name, source, model, transform, open_clip.get_model_preprocess_cfg(model))


def _listed(name: str, open_clip: Any) -> str:
    """`MODEL/PRETRAINED` as OpenCLIP lists it; without PRETRAINED the first of its list."""
    model, _, tag = name.partition("/")
    tags = open_clip.list_pretrained_tags_by_model(model)
    if not tags:
        raise ValueError(
            f"OpenCLIP has no weights for a model named {model}: open_clip.list_pretrained() tells "
            "what it has"
        )
    if tag and not open_clip.is_pretrained_cfg(model, tag):
        raise ValueError(f"OpenCLIP has no {model}/{tag}: of {model} it has {', '.join(tags)}")
    return f"{model}/{tag or tags[0]}"


def _at_hand(name: str, open_clip: Any) -> tuple[str, str | None]:
    """OpenCLIP's names of a model and its weights, which are in the hub's cache then.

    Wherever possible it is a folder with the model's own configuration: OpenCLIP's lists do not
    always say how weights were trained (OpenAI's activation, for one), and it asks the hub again
    and again where there is no network.
    """
    model, tag = name.split("/")
    repository, _, file = open_clip.get_pretrained_cfg(model, tag)["hf_hub"].rpartition("/")
    folder = model_folder(repository, [file] if file else WEIGHTS)
    return (f"local-dir:{folder}", None) if (folder / CONFIG).is_file() else (model, tag)
