"""A tokenizer and a text encoder that need no files, for pipelines that require text."""

from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import ModuleUtilsMixin

WIDTH = 16  # of text embeddings
TOKENS = 5  # in a prompt, with padding


class Letters:
    """A tokenizer with a token for each of the last `TOKENS` letters; 0 is padding."""

    model_max_length = TOKENS
    pad_token_id = 0

    def __init__(self, padding_side: str = "right") -> None:
        self.padding_side = padding_side
        self.added_tokens_encoder: dict[str, int] = {}

    def __call__(
        self, texts: Any, padding: Any = True, max_length: int = TOKENS, **_: Any
    ) -> BatchEncoding:
        texts = [texts] if isinstance(texts, str) else texts
        length = min(TOKENS, max_length if padding == "max_length" else max(1, *map(len, texts)))
        pad = str.ljust if self.padding_side == "right" else str.rjust
        padded = [pad(text[-length:], length, "`") for text in texts]
        ids = torch.tensor([[ord(letter) % 32 for letter in text] for text in padded])
        encoded = {"input_ids": ids, "attention_mask": (ids > 0).long()}
        return BatchEncoding(encoded | {"position_ids": torch.arange(length).expand_as(ids)})

    def tokenize(self, text: str) -> list[str]:
        return list(text)

    def batch_decode(self, ids: Tensor) -> list[str]:
        return [str(row.tolist()) for row in ids]


class LettersEncoder(torch.nn.Module, ModuleUtilsMixin):
    """A text encoder with a random embedding for each letter; that of the first letter is pooled,
    and the first output if `pooled`, as in CLIP with projection. Hidden states are (tokens,
    prompts, width) if `tokens_first`, as in ChatGLM.
    """

    def __init__(self, width: int = WIDTH, pooled: bool = False, tokens_first: bool = False):
        super().__init__()
        self.table = torch.nn.Embedding(32, width)
        self.pooled = pooled
        self.tokens_first = tokens_first

    def forward(self, input_ids: Tensor, *_: Any, **__: Any) -> BaseModelOutputWithPooling:
        tokens = self.table(input_ids)
        states = tokens.transpose(0, 1) if self.tokens_first else tokens
        return BaseModelOutputWithPooling(
            last_hidden_state=tokens[:, 0] if self.pooled else tokens,
            pooler_output=tokens[:, 0],
            hidden_states=(states,) * 3,
        )
