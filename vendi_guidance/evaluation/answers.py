"""Judges that answer questions about images: people or programs, in a table, and local models."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import pipeline

from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.embedding import Embedded, ImageReader
from vendi_guidance.evaluation.judges import AttributeJudge
from vendi_guidance.features.weights import reason
from vendi_guidance.storage.files import append_rows, sha256_of
from vendi_guidance.storage.images import open_image
from vendi_guidance.storage.tables import FILE_COLUMNS, pick, read_table

TOKENS = 32  # most of an answer
NUMBER = re.compile(r"\d*\.?\d+(e[+-]?\d+)?", re.IGNORECASE)


class _FileJudge(AttributeJudge):
    """A judge that looks at the images' files."""

    name: str = ""

    def look(self, found: Embedded, reader: ImageReader) -> Any:
        paths = found.batch.images.paths()
        if paths is None:
            raise ValueError(f"{self.name} judges files: give a folder of images, or their paths")
        return np.array(paths, dtype=object)


@dataclass(frozen=True, eq=False)
class Answers(_FileJudge):
    """Answers of people or of another program.

    Attributes:
        of: answers and their confidence by file and attribute. A file is the end of a path, such as
            its name; several answers to a question count equally. What is none of the attribute's
            values, such as "none of these", is no answer.
        name: of the table.

    Example:
        >>> answers = Answers({("0.png", "hair"): [("black", 0.75)]})
        >>> answers.probabilities([Path("run/0.png")], Attribute("hair", ("black", "brown")))
        tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """

    of: Mapping[tuple[str, str], Sequence[tuple[str, float]]]
    name: str = "answers"
    _files: dict[str, Path] = field(default_factory=dict, init=False)

    @classmethod
    def read(cls, path: Path) -> "Answers":
        """Read a table, such as CSV or JSON Lines, with the columns file, attribute, value and, if
        not 1, confidence. ValueError, which names the line, if a row has another form."""
        of: defaultdict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
        for place, row in read_table(path, torn_end=True):
            columns = (FILE_COLUMNS, ["attribute"], ["value"], ["confidence"])
            file, attribute, value, given = (pick(row, names) for names in columns)
            is_whole = isinstance(file, str) and isinstance(attribute, str) and value is not None
            if not is_whole or "" in (file, value):
                raise ValueError(f"{place} lacks a file, attribute or value: it has {[*row]}")
            given = 1 if given in (None, "") else given
            confidence = float(given) if NUMBER.fullmatch(str(given)) else -1
            if not 0 <= confidence <= 1:
                raise ValueError(f"{place}: confidence must lie between 0 and 1, got {given!r}")
            of[file.replace("\\", "/"), attribute].append((str(value), confidence))
        if not of:
            raise ValueError(f"{path} has no answers")
        return cls(of, path.name)

    def probabilities(self, features: Sequence[Path], attribute: Attribute) -> Tensor:
        places = {value.casefold(): place for place, value in enumerate(attribute.values)}
        shape, others = (len(features), len(places)), len(places) - 1
        p = torch.zeros(shape, dtype=torch.float64, device="cpu")
        for row, path in zip(p, features, strict=True):
            for value, confidence in self._answers(path, attribute.name):
                if (place := places.get(value.strip().casefold())) is not None:
                    row += (1 - confidence) / others
                    row[place] += confidence - (1 - confidence) / others
        return p / p.sum(1, keepdim=True)  # NaN without an answer

    def count(self, paths: Sequence[Path], attributes: Sequence[Attribute]) -> int:
        """The number of files with an answer that is a value of one of these attributes."""
        known = [~self.probabilities(paths, one)[:, 0].isnan() for one in attributes]
        return int(torch.stack(known).any(0).sum())

    def _answers(self, path: Path, attribute: str) -> Sequence[tuple[str, float]]:
        """ValueError if two files have the end of a path in common that an answer names."""
        parts = path.as_posix().split("/")
        ends = ("/".join(parts[start:]) for start in range(len(parts)))
        end = next((end for end in ends if (end, attribute) in self.of), None)
        if end is None:
            return ()
        if (other := self._files.setdefault(end, path)) != path:
            raise ValueError(
                f"{self.name} has an answer about {end}, which is {other} and {path}: name the "
                "folder in the table too"
            )
        return self.of[end, attribute]


class Questions(_FileJudge):
    """A local visual question answering model: what transformers' pipeline "image-text-to-text"
    loads from a folder, such as a Qwen-VL or SmolVLM.

    Answers are kept beside the images, in `answers-NAME.jsonl`, which `Answers.read` can read; a
    question about the same content is asked once. ValueError if the folder has no such model.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        try:
            self.ask = pipeline("image-text-to-text", model=str(folder), device=device)
        except Exception as error:  # libraries raise errors of every kind
            why = f"{folder} cannot answer questions about images: {reason(error)}"
            raise ValueError(why) from error
        self.name = folder.resolve().name
        self._known: dict[Path, dict[tuple[str, str], str]] = {}

    def probabilities(self, features: Sequence[Path], attribute: Attribute) -> Tensor:
        answers = list(self._answers(features, attribute))
        seen = [[answer == value for value in attribute.values] for answer in answers]
        p = torch.tensor(seen, dtype=torch.float64, device="cpu")
        return p / p.sum(1, keepdim=True)  # NaN without an answer

    def _answers(self, paths: Sequence[Path], attribute: Attribute) -> Iterator[str]:
        """The answer about each file, from its folder's table or else by the model."""
        what = attribute.name
        question = what if what.endswith("?") else f"Which {what} does this image show?"
        question += f" Answer with one of: {', '.join(attribute.values)}, none of these."
        for path in tqdm(paths, what, leave=False):
            if not path.is_file():
                where = f"{path} is in a .tar file"
                raise ValueError(f"{self.name} needs files, and {where}: unpack it")
            table = path.parent / f"answers-{self.name}.jsonl"
            known, key = self._table(table), (sha256_of(path), question)
            if key not in known:
                text = self._answer(path, question)
                known[key] = attribute.named(text) or text
                row = {"file": path.name, "attribute": what, "value": known[key]}
                append_rows(table, [{**row, "question": question, "sha256": key[0]}])
            yield known[key]

    def _answer(self, path: Path, question: str) -> str:
        content = [{"type": "image", "image": open_image(path)}, {"type": "text", "text": question}]
        chat = [{"role": "user", "content": content}]
        options: Any = {"max_new_tokens": TOKENS, "generate_kwargs": {"do_sample": False}}
        return str(self.ask(text=chat, return_full_text=False, **options)[0]["generated_text"])

    def _table(self, table: Path) -> dict[tuple[str, str], str]:
        """Known answers by the digest of the file and the question. An incomplete last line, as a
        killed run leaves it, is deleted."""
        if table not in self._known:
            with table.open("ab+") as file:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            rows = (row for _, row in read_table(table))
            self._known[table] = {(it["sha256"], it["question"]): str(it["value"]) for it in rows}
        return self._known[table]
