"""Noise on the prompt embeddings that ComfyUI gives a model, for one evaluation."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from vendi_guidance.adapter.tokens import changed
from vendi_guidance.guidance.step import Perturb

TOKENS = {
    "c_crossattn": ("attention_mask", "text_embedding_mask"),
    "clip_text": (),  # Stable Cascade
    "encoder_hidden_states_t5": ("text_embedding_mask_t5",),  # HunyuanDiT
}
"""Names of token embeddings in ComfyUI's models, with the possible names of their masks."""


def has_tokens(guider: Any) -> bool:
    """Whether the prompts have token embeddings."""
    return any(_tokens(cond) for cond in _positive(guider))


@contextmanager
def perturbed(guider: Any, count: int, perturb: Perturb | None) -> Iterator[None]:
    """Change a guider's token embeddings, independently for each of `count` samples; None changes
    nothing."""
    if perturb is None:
        yield
        return
    before = guider.conds
    positive = [_perturbed(cond, count, perturb) for cond in _positive(guider)]
    guider.conds = {**before, "positive": positive}
    try:
        yield
    finally:
        guider.conds = before


def _positive(guider: Any) -> list[Mapping[str, Any]]:
    return guider.conds.get("positive") or []


def _tokens(cond: Mapping[str, Any]) -> list[str]:
    return [name for name in TOKENS if name in cond.get("model_conds", {})]


def _perturbed(cond: Mapping[str, Any], count: int, perturb: Perturb) -> dict[str, Any]:
    """A conditioning with a row of noisy token embeddings for each sample."""
    own = cond["model_conds"]
    tensors = {name: getattr(it, "cond", None) for name, it in own.items()}
    given = {name: _repeated(it, count) for name, it in tensors.items() if isinstance(it, Tensor)}
    tokens = {name: TOKENS[name] for name in _tokens(cond)}
    changes = {}
    for name, noisy in changed(given, tokens, range(count), count, perturb).items():
        changes[name] = copy.copy(own[name])
        changes[name].cond = noisy
    return {**cond, "model_conds": {**own, **changes}}


def _repeated(rows: Tensor, count: int) -> Tensor:
    """Repeat rows to the size of a batch, as ComfyUI does."""
    return rows.repeat(-(-count // len(rows)), *[1] * (rows.ndim - 1))[:count]
