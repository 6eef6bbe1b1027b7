"""Loads CLIP and SigLIP models with OpenCLIP, from folders or the Hugging Face hub."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from vendi_guidance.features.weights import conversion, model_folder, reason
from vendi_guidance.kernels.precision import float32_by_default
from vendi_guidance.storage.messages import optional_import

WEIGHTS = "open_clip_model.safetensors"
CONFIG = "open_clip_config.json"


class OpenClip(NamedTuple):
    """A loaded model and its preprocessing."""

    name: str  # it was requested by, with PRETRAINED filled in
    model: Any  # has `visual` and `encode_text`
    open_tokenizer: Callable[[], Any]  # of `encode_text`, which may need more files
    transform: Callable[[Image.Image], Tensor]
    preprocessing: dict[str, Any]  # settings of `transform`, as JSON values


@float32_by_default()
def load_open_clip(name: str) -> OpenClip:
    """Load a model and its preprocessing; ValueError if OpenCLIP cannot, or only from a pickle.

    The name is `MODEL[/PRETRAINED]` as listed by `open_clip.list_pretrained` (PRETRAINED defaults
    to the first in the list), `hf-hub:NAME`, or a folder with OpenCLIP's configuration and
    `open_clip_model.safetensors`. "" is OpenAI's ViT-B-32.
    """
    open_clip = optional_import("open_clip", "open_clip_torch", "CLIP")
    name, tag = (name or "ViT-B-32/openai").removeprefix("local-dir:"), None
    if Path(name).is_dir():
        model_folder(name, CONFIG)
        source = f"local-dir:{model_folder(name, WEIGHTS)}"
    elif name.startswith("hf-hub:"):
        source = f"local-dir:{model_folder(name.removeprefix('hf-hub:'), WEIGHTS)}"
    else:
        name, folder = _pretrained(open_clip, *name.split("/", 1))
        # Prefer the model's own configuration: OpenCLIP's list omits some settings of the training
        # (OpenAI's activation), and loading by it keeps retrying the hub when there is no network.
        has_config = (folder / CONFIG).is_file()
        source, tag = (f"local-dir:{folder}", None) if has_config else name.split("/")
    try:
        load = open_clip.create_model_and_transforms
        model, _, transform = load(source, tag, require_pretrained=True)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"OpenCLIP cannot load {name}: {reason(error)}") from error
    tokenizer = partial(open_clip.get_tokenizer, source)
    return OpenClip(name, model, tokenizer, transform, open_clip.get_model_preprocess_cfg(model))


def _pretrained(open_clip: Any, model: str, tag: str = "") -> tuple[str, Path]:
    """`MODEL/PRETRAINED` of a model that OpenCLIP lists, and its folder in the hub's cache."""
    tags = open_clip.list_pretrained_tags_by_model(model)
    if not tags:
        raise ValueError(f"OpenCLIP has no weights for {model}: see open_clip.list_pretrained()")
    if tag and not open_clip.is_pretrained_cfg(model, tag):
        raise ValueError(f"OpenCLIP has no {model}/{tag}: use one of {', '.join(tags)}")
    tag = tag or tags[0]
    repository, _, file = open_clip.get_pretrained_cfg(model, tag)["hf_hub"].rpartition("/")
    if file:
        raise ValueError(
            f"OpenCLIP has {model}/{tag} only as the pickle {file} in {repository}: use a model "
            f"with {WEIGHTS}, or {conversion(WEIGHTS)}, and give their folder with a {CONFIG}"
        )
    return f"{model}/{tag}", model_folder(repository, WEIGHTS)
