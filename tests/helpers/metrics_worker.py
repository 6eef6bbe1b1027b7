"""One of several processes that score a sample together, batch by batch; `test_metrics` starts it.

torchrun --nproc_per_node 2 tests/metrics_worker.py FOLDER
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.metrics import (
    ConditionalRKEScore,
    ConditionalVendiScore,
    EntropyMetric,
    InformationRKEScore,
    InformationVendiScore,
    RKEScore,
    VendiScore,
)
from vendi_guidance.scores.spectra import Exact, RandomFourier

KERNELS = Gaussian(1.5), Gaussian(0.7)
SPECTRA = {"exact": Exact(), "random Fourier": RandomFourier(64, seed=3)}
OF_ITEMS = VendiScore, RKEScore
OF_PROMPTS = (
    ConditionalVendiScore,
    ConditionalRKEScore,
    InformationVendiScore,
    InformationRKEScore,
)

SHARES = {  # which process gets each of six batches
    "in turn": [0, 1, 0, 1, 0, 1],
    "unequal": [0, 0, 1, 0, 0, 0],
    "all to one": [1, 1, 1, 1, 1, 1],
}


def sample() -> tuple[Tensor, Tensor]:
    """x: (60, 5) and t: (60, 3), float64, of a few prompts."""
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    t = t[torch.randint(4, (60,), generator=generator)]
    return torch.randn(60, 5, generator=generator, dtype=torch.float64), t


def metrics(spectrum: str) -> Iterator[tuple[EntropyMetric, tuple[Tensor, ...]]]:
    """One of each class, and what it reads."""
    x, t = sample()
    for one in OF_ITEMS:
        yield one(KERNELS[0], spectrum=SPECTRA[spectrum]), (x,)
    for one in OF_PROMPTS:
        yield one(*KERNELS, spectrum=SPECTRA[spectrum]), (x, t)


def main(folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    found = {}
    for spectrum in SPECTRA:
        for share, owners in SHARES.items():
            for metric, features in metrics(spectrum):
                batches = zip(*(each.tensor_split(len(owners)) for each in features), strict=True)
                for i, (owner, batch) in enumerate(zip(owners, batches, strict=True)):
                    if owner == rank:
                        metric.update(*batch)
                    if i == 3 and share == "in turn":
                        metric.compute()  # what all know together is not what each goes on with
                found[f"{type(metric).__name__}, {spectrum}, {share}"] = float(metric.compute())
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()  # PyTorch 2.7 can wait forever for a process that has left
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
