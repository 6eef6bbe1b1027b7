"""What judges the demo's pictures: its probe, its model's text encoder, and their bandwidths."""

from pathlib import Path

import transformers

from vendi_guidance.evaluation.embedding import IMAGE_SIGMAS, PROMPT_SIGMAS
from vendi_guidance.features.base import PromptEmbedder
from vendi_guidance.features.prompts import open_prompt_embedder

SIGMA_IMAGE = IMAGE_SIGMAS["probe"]
SIGMA_PROMPT = PROMPT_SIGMAS["sdxl"]


def load_text_embedder(folder: Path) -> PromptEmbedder:
    """The second text encoder of the SDXL in a folder.

    Raises:
        ValueError: its weights are damaged.
        FileNotFoundError: there is none.
    """
    transformers.utils.logging.disable_progress_bar()
    return open_prompt_embedder(f"sdxl:{folder}")
