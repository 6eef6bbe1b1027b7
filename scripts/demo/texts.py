"""Small CLIP tokenizers and text encoders for the demo models."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTokenizer

from vendi_guidance.storage.files import whole_file


def make_tokenizer(captions: Iterable[str], folder: Path, length: int) -> CLIPTokenizer:
    """A CLIP tokenizer with merges learnt from captions, and prompts of at most `length` tokens.

    It is stored in `folder` for resumed trainings: learnt again, its tokens might get other ids.
    """
    if not (folder / "vocab.json").exists():
        _learn_tokens(captions, folder)
    return CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=length
    )


def _learn_tokens(captions: Iterable[str], folder: Path) -> None:
    """Write vocab.json and merges.txt."""
    start, end = "<|startoftext|>", "<|endoftext|>"
    words = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2_000, min_frequency=1, initial_alphabet=alphabet, end_of_word_suffix="</w>"
    )
    words.train_from_iterator(captions, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    learned = json.loads(words.to_str())["model"]
    vocabulary = words.get_vocab()
    # any byte may also end a word, so that every text has tokens
    for token in [f"{byte}</w>" for byte in alphabet] + [start, end]:
        vocabulary.setdefault(token, len(vocabulary))
    merges = "".join(" ".join(pair) + "\n" for pair in learned["merges"])
    with whole_file(folder / "merges.txt") as temporary:
        temporary.write_text("#version: 0.2\n" + merges, encoding="utf-8")
    with whole_file(folder / "vocab.json") as temporary:
        temporary.write_text(json.dumps(vocabulary), encoding="utf-8")


def token_ids(tokenizer: CLIPTokenizer, texts: list[str], device: str) -> Tensor:
    """(texts, tokens) ids, padded or cut to the tokenizer's maximum length."""
    tokens = tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")
    return tokens.input_ids.to(device)


def text_config(tokenizer: CLIPTokenizer, width: int) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=width,
        num_hidden_layers=2,
        num_attention_heads=width // 32,
        max_position_embeddings=tokenizer.model_max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
