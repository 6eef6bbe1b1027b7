"""What judges the demo's pictures: its probe, its model's text encoder, and their bandwidths."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import transformers
from safetensors import SafetensorError

from vendi_guidance.embedders import Probe, TextEmbedder

# Two looks of one emoji lie about 10 apart in the probe's features, two emoji about 18, variants of
# one look far less: at 4, looks count as different and variants as the same.
SIGMA_IMAGE = 4.0
SIGMA_PROMPT = 0.3


def load_probe(folder: Path) -> Probe:
    """The probe in a folder.

    Raises:
        ValueError: its weights are damaged.
        FileNotFoundError: there is none.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"there is no probe in {folder}: it has no config.json")
    with _damage_named(folder), redirect_stdout(None):  # huggingface_hub prints that it loads
        return Probe.from_pretrained(folder)


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
