"""Noise on the prompt embeddings that ComfyUI gives a model, for one evaluation."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

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
    """Change a guider's token embeddings, independently for each sample.

    Args:
        count: number of samples.
        perturb: see `Perturb`; None changes nothing.

    Raises:
        ValueError: the prompts have no token embeddings.
    """
    if perturb is None:
        yield
        return
    if not has_tokens(guider):
        raise ValueError(
            "the conditioning has no token embeddings, so the prompt cannot be perturbed"
        )
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
    model_conds = cond["model_conds"]
    changes = {}
    for name in _tokens(cond):
        rows = _repeated(model_conds[name].cond, count)
        masks = _masks(model_conds, name, rows)
        arguments = zip(rows.split(1), range(count), masks, strict=True)
        noisy = [perturb(*of_sample) for of_sample in arguments]
        changes[name] = copy.copy(model_conds[name])
        changes[name].cond = torch.cat(noisy)
    return {**cond, "model_conds": {**model_conds, **changes}}


def _masks(
    model_conds: Mapping[str, Any], name: str, rows: Tensor
) -> Sequence[Tensor] | Sequence[None]:
    """For each row, a (t,) mask of the tokens that the model reads; None if there is no mask."""
    for mask in (model_conds[it].cond for it in TOKENS[name] if it in model_conds):
        if mask.ndim == 2 and mask.shape[1] == rows.shape[1]:
            return [*(_repeated(mask, len(rows)) > 0)]
    return [None] * len(rows)


def _repeated(rows: Tensor, count: int) -> Tensor:
    """Repeat rows to the size of a batch, as ComfyUI does."""
    return rows.repeat(-(-count // len(rows)), *[1] * (rows.ndim - 1))[:count]
