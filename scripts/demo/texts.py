"""The CLIP tokenizers and text encoders of the demo models, small and trained from scratch."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTextConfig, CLIPTokenizer

from vendi_guidance.storage.files import whole_file


def make_tokenizer(captions: Iterable[str], folder: Path, length: int) -> CLIPTokenizer:
    """A CLIP tokenizer whose merges are learnt from the captions; prompts have `length` tokens.

    It is kept in `folder`: learning it again would number its tokens anew, and a resumed training
    would read other words.
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
    # a byte may also end a word: any text must have tokens
    for token in [f"{byte}</w>" for byte in alphabet] + [start, end]:
        vocabulary.setdefault(token, len(vocabulary))
    merges = "".join(" ".join(pair) + "\n" for pair in learned["merges"])
    with whole_file(folder / "merges.txt") as temporary:
        temporary.write_text("#version: 0.2\n" + merges, encoding="utf-8")
    with whole_file(folder / "vocab.json") as temporary:
        temporary.write_text(json.dumps(vocabulary), encoding="utf-8")


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
