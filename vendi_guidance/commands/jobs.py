"""The work of `vendi-guidance evaluate`, which several processes can share."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from vendi_guidance.commands.cli import tell
from vendi_guidance.commands.run_options import PROTOCOLS
from vendi_guidance.commands.scoring_options import Scoring, open_scoring
from vendi_guidance.evaluation.answers import Answers
from vendi_guidance.evaluation.batches import Batch, Images, as_batch
from vendi_guidance.evaluation.embedding import (
    IMAGE_SIGMAS,
    PROMPT_SIGMAS,
    ImageReader,
    embed_batch,
)
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.results import Report
from vendi_guidance.evaluation.streaming import Sums
from vendi_guidance.features.base import load_features
from vendi_guidance.features.files import file_features
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.scores.spectra import RandomFourier
from vendi_guidance.storage.images import formats, key_of, walk
from vendi_guidance.storage.messages import counted, first_few

INCEPTION = "timm:inception_v3.tv_in1k"  # of in-group Vendi
LABELS = 30  # images with right answers that are enough to correct shares
SLICE = 8192  # images of a folder that are streamed at a time


@dataclass(frozen=True)
class Job:
    """One or two folders, and how their images are scored."""

    batches: list[Batch]
    names: list[str]
    scoring: Scoring
    references: Images | None
    reader: ImageReader

    def embed_share(self, share: tuple[int, int]) -> None:
        """Add the features of a share (i, n) of all images, the i-th of n, to the reader's cache,
        from which `reports` takes them."""
        image: Any = self.scoring.embedding.image
        embedders = self.scoring.judges.embedders(image)
        todo = [(batch, embedder) for batch in self.batches for embedder in embedders]
        if isinstance(self.references, Path):
            todo.append((as_batch(self.references, read_prompts=False), image))
        for batch, embedder in todo:
            paths = batch.images.paths() or []
            file_features(paths, embedder, share=share, **vars(self.reader))

    def reports(self) -> list[Report]:
        """A report of each folder; the second has the kernels and references of the first."""
        embedding, judges, notes, _ = self.scoring
        real, reports = self.references, list[Report]()
        for name, batch in zip(self.names, self.batches, strict=True):
            if reports:
                first = reports[0].inputs
                embedding, real = embedding.with_kernels_of(first), first.reference
            how: Any = {"embedding": embedding, "judges": judges, "reader": self.reader}
            report = evaluate(batch, name=name, references=real, **how)
            report.notes.extend(notes)
            reports.append(report)
        return reports


def prepare(
    folders: Sequence[Path],
    group: ProcessGroup,
    stream: int | None,
    *,
    sigma_image: float | None,
    sigma_prompt: float | None,
    truncation: int | None,
    reference: Path | None,
    protocol: str | None,
    faithfulness: str | None,
    cache: Path | None,
    workers: int,
    on_bad_image: Literal["skip", "fail"],
    **scoring: Any,
) -> Job:
    """List the images and open the embedders and judges that the options name."""
    say: Callable[[str], object] = tell if group.is_first else lambda remark: None
    # streaming reads a part at a time, of which the first tells what prompts are like
    batches = [as_batch(parts_of(folder)[0] if stream else folder) for folder in folders]
    without = [folder for folder, one in zip(folders, batches, strict=True) if one.prompts is None]
    if 0 < len(without) < len(folders):
        raise ValueError(f"{without[0]} has no prompts: to compare folders, give both prompts")
    prompts = [prompt for batch in batches for prompt in batch.prompts or []]
    if protocol is not None:
        scoring["image_embedder"] = scoring["image_embedder"] or INCEPTION
    found = open_scoring(prompts, group.device, tell=say, **scoring)
    sigmas = {"kernel_image": sigma_image, "kernel_prompt": sigma_prompt}
    kernels: Any = {name: sigma and Gaussian(sigma) for name, sigma in sigmas.items()}
    size = PROTOCOLS[protocol] if protocol else None
    embedding = replace(found.embedding, truncation=truncation, group_size=size, **kernels)
    judges = replace(found.judges, faithfulness=faithfulness)
    for table in (judges.attribute_judge, judges.labelled):
        if isinstance(table, Answers):
            batches = _with_counts(batches, table, judges)
    real: Any = reference or found.reference
    if real and real.is_file() and real.suffix.lower() != ".tar":
        real = load_features(real)
    names = [folder.resolve().name for folder in folders]
    names = names if len({*names}) == len(names) else [*map(str, folders)]
    for name, batch in zip(names, batches, strict=True):
        say(f"{name}: {batch.note}")
    reader = ImageReader(cache, workers, on_bad_image, progress=group.is_first)
    return Job(batches, names, found._replace(embedding=embedding, judges=judges), real, reader)


def _with_counts(batches: list[Batch], table: Answers, judges: Judges) -> list[Batch]:
    """Batches whose notes say how many images a table of answers is about; ValueError if none."""
    counts = [table.count(it.images.paths() or [], judges.attributes) for it in batches]
    if not any(counts):
        names = "check its names of files, attributes and values"
        raise ValueError(f"{table.name} has answers about none of the images: {names}")
    found = []
    for batch, count in zip(batches, counts, strict=True):
        note = f"{table.name} has answers about {count:,} of {counted(len(batch.images), 'image')}"
        if table is judges.labelled and count < LABELS:
            note += f"; label {LABELS} or more to correct shares well"
        found.append(replace(batch, note=f"{batch.note} {note}."))
    return found


def parts_of(folder: Path) -> list[Path]:
    """What is streamed one after the other: the `.tar` files below a folder, or the folder if there
    are fewer than two. ValueError if there are images beside them."""
    files = sorted(walk(folder))
    shards = [file for file in files if file.suffix.lower() == ".tar"]
    if len(shards) < 2:
        return [folder]
    if loose := [str(file) for file in files if file.suffix.lower() in formats()]:
        raise ValueError(
            f"--stream reads the {len(shards):,} .tar files in {folder}, but not the images beside "
            f"them: move {first_few(loose)} elsewhere"
        )
    return shards


def streamed(
    job: Job, folders: Sequence[Path], kept: Path, features: int, group: ProcessGroup
) -> dict[str, Sums]:
    """The sums of each folder over random Fourier features. The processes take turns in its parts
    and keep their sums in the folder `kept`: a new start goes on from them unless files, prompts or
    settings have changed."""
    embedding = job.scoring.embedding
    spectrum = RandomFourier(features)
    settings: list[Any] = [features, job.reader.on_bad_image]
    given: dict[str, Any] = {"image": (embedding.kernel_image, IMAGE_SIGMAS, embedding.image)}
    if job.batches[0].prompts is not None:
        given["prompt"] = (embedding.kernel_prompt, PROMPT_SIGMAS, embedding.prompt)
    for what, (kernel, usual, embedder) in given.items():
        name = getattr(embedder, "name", "")
        if kernel is None and name not in usual:
            raise ValueError(f"--stream needs --sigma-{what}: {name} has no usual bandwidth")
        settings += [name, getattr(embedder, "settings", {}), repr(kernel)]
    found = {}
    for name, folder, batch in zip(job.names, folders, job.batches, strict=True):

        def add(folder: Path = folder, batch: Batch = batch) -> Sums:
            parts = shares_of(folder, batch, group)
            path = kept / f"{_digest([settings, *parts])}.safetensors"
            sums = Sums.load(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            for part, read in parts.items():
                if part not in sums.done:
                    sums.add(part, embed_batch(read(), embedding, job.reader), spectrum)
                    sums.save(path)
            return sums

        own, found[name] = group.agree(add), Sums()
        for header, of in group.share(own.header(), **own.of):
            found[name].merge(Sums(**header, of=of))
    return found


def shares_of(folder: Path, first: Batch, group: ProcessGroup) -> dict[str, Callable[[], Batch]]:
    """This process's parts of a folder, by digests of their files' sizes and times, and prompts:
    whole `.tar` files, or some images at a time. `first` is the first of `parts_of` the folder."""
    if len(parts := parts_of(folder)) > 1:
        own = parts[group.rank :: group.count]
        return {key_of(part).hex(): partial(as_batch, part) for part in own}
    n, found = len(first.images), dict[str, Callable[[], Batch]]()
    for start in range(group.rank * SLICE, n, group.count * SLICE):
        read = partial(first.take, range(start, min(start + SLICE, n)))
        keys = [key_of(path).hex() for path in read().images.paths() or []]
        found[_digest([keys, read().prompts])] = read
    return found


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
