"""What judges the demo's pictures: its probe, its model's text encoder, and their bandwidths."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import transformers
from safetensors import SafetensorError

from vendi_guidance.evaluation.embedding import IMAGE_SIGMAS, PROMPT_SIGMAS
from vendi_guidance.features.prompts import TextEmbedder

SIGMA_IMAGE = IMAGE_SIGMAS["probe"]
SIGMA_PROMPT = PROMPT_SIGMAS["sdxl"]


def load_text_embedder(folder: Path) -> TextEmbedder:
    """The second text encoder of the SDXL in a folder.

    Raises:
        ValueError: its weights are damaged.
        FileNotFoundError: there is none.
    """
    for part in ("tokenizer_2", "text_encoder_2"):
        if not (folder / part).is_dir():
            raise FileNotFoundError(f"there is no SDXL in {folder}: it has no {part}")
    transformers.utils.logging.disable_progress_bar()
    with _damage_named(folder):
        return TextEmbedder.from_pretrained(folder)


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged: {error}") from None
