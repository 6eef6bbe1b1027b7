import itertools
import json
import pickle
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from torchmetrics import MetricCollection

from tests.helpers.processes import fork_team, needs_fork
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed
from vendi_guidance.scores import functional, metrics as classes
from vendi_guidance.scores.metrics import ConditionalVendiScore, VendiScore
from vendi_guidance.scores.spectra import Exact, RandomFourier

KERNELS = Gaussian(1.5), Gaussian(0.7)
SPECTRA = {"exact": Exact(), "random Fourier": RandomFourier(64, seed=3)}
SHARES = [0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0], [1] * 6
"""Which process gets each of six batches."""


def sample():
    """x: (60, 5) and t: (60, 3), float64, of a few prompts."""
    generator = torch.Generator().manual_seed(0)
    t = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    t = t[torch.randint(4, (60,), generator=generator)]
    return torch.randn(60, 5, generator=generator, dtype=torch.float64), t


def metrics(spectrum):
    """One of each class, and what it reads."""
    x, t = sample()
    for one in SCORES:
        features = (x,) if issubclass(one, VendiScore) else (x, t)
        metric = one(*KERNELS[: len(features)], spectrum=SPECTRA[spectrum])
        yield metric.to(x.device), features


SCORES = {
    classes.VendiScore: functional.vendi,
    classes.ConditionalVendiScore: functional.conditional_vendi,
    classes.InformationVendiScore: functional.information_vendi,
}
CUTS = {"at once": [], "evenly": [20, 40], "unevenly": [1, 2, 50], "one by one": list(range(1, 60))}

spectra = pytest.mark.parametrize("spectrum", SPECTRA)
# torchmetrics says it before us
early = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")


def expected(metric, features) -> float:
    kernels = KERNELS[: len(features)]
    return float(SCORES[type(metric)](*features, *kernels, spectrum=metric.spectrum))


def fed(metric, features, cuts=(20, 40)):
    """Each batch in a buffer that its owner uses again afterwards."""
    for batch in zip(*(each.tensor_split(list(cuts)) for each in features), strict=True):
        buffers = [each.clone() for each in batch]
        metric.update(*buffers)
        for buffer in buffers:
            buffer.zero_()
    return metric


@spectra
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_batches_however_cut_score_as_the_whole_does(spectrum, cuts):
    for metric, features in metrics(spectrum):
        score = fed(metric, features, cuts).compute()
        assert score.shape == () and score.dtype == torch.float64
        assert float(score) == pytest.approx(expected(metric, features), rel=1e-9)


@pytest.mark.parametrize("truncation", [None, 7])
@pytest.mark.parametrize(
    ("spectrum", "kernels"),
    [
        *((spectrum, KERNELS) for spectrum in (Exact(), RandomFourier(64))),
        (Exact(), (Cosine(), Cosine())),
    ],
)
def test_order_truncation_and_spectrum_are_those_of_the_scores(spectrum, kernels, truncation):
    x, t = sample()
    for order in (0.5, 1, 2, float("inf")):
        settings = {"order": order, "truncation": truncation, "spectrum": spectrum}
        for one in (VendiScore, ConditionalVendiScore, classes.InformationVendiScore):
            features, how = ((x,), kernels[:1]) if one is VendiScore else ((x, t), kernels)
            score = float(fed(one(*how, **settings).to(x.device), features).compute())
            assert score == pytest.approx(float(SCORES[one](*features, *how, **settings)), rel=1e-6)


def score_in_turn(folder: Path, rank: int) -> None:
    """One of two processes that score a sample together, batch by batch."""
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
    found = []
    for spectrum, share in itertools.product(SPECTRA, SHARES):
        for metric, features in metrics(spectrum):
            batches = zip(*(each.tensor_split(6) for each in features), strict=True)
            for i, (owner, batch) in enumerate(zip(share, batches, strict=True)):
                if owner == rank:
                    metric.update(*batch)
                if i == 3 and share == SHARES[0]:
                    metric.compute()  # what all know together is not what each goes on with
            found.append(float(metric.compute()))
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()  # PyTorch 2.7 can wait forever for a process that has left
    torch.distributed.destroy_process_group()


@needs_fork
def test_two_processes_score_as_one_does(tmp_path):
    if not sample()[0].is_cpu:
        pytest.skip("forked processes cannot use a GPU")
    logs = [tmp_path / f"{rank}.log" for rank in (0, 1)]
    assert fork_team(partial(score_in_turn, tmp_path), logs) == [0, 0], logs[0].read_text()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]
    scores = [expected(*both) for how in SPECTRA for _ in SHARES for both in metrics(how)]
    assert found[0] == pytest.approx(scores, rel=1e-9)


@spectra
@early
def test_forward_merge_and_reset(spectrum):
    """A forward scores the batch and adds it; a merged metric has seen what both have; a reset one
    nothing, and takes items of another width, as a forward does not."""
    for metric, features in metrics(spectrum):
        score = metric(*(each[:10].clone().requires_grad_() for each in features))
        start = expected(metric, [each[:10] for each in features])
        assert float(score) == pytest.approx(start, rel=1e-9) and not score.requires_grad
        other = fed(metric.clone(), [each[10:] for each in features])
        other.merge_state(metric)
        both = expected(metric, [torch.cat([each, each[:10]]) for each in features])
        assert float(other.compute()) == pytest.approx(both, rel=1e-9)
        assert float(metric.compute()) == pytest.approx(start, rel=1e-9)
        metric.reset()
        with pytest.raises(ValueError, match=f"{type(metric).__name__} has seen no items"):
            metric.compute()
        narrow = features[0][:, :4], *features[1:]
        metric.update(*narrow)
        for add in (metric, metric.update):
            with pytest.raises(ValueError, match="batches must agree in d"):
                add(*features)
        assert float(metric.compute()) == pytest.approx(expected(metric, narrow))
        metric.reset()
        assert float(fed(metric, features).compute()) == pytest.approx(expected(metric, features))


@spectra
def test_a_collection_gives_each_metric_what_it_reads_and_keeps_it_once(spectrum):
    x, t = sample()
    both = {type(metric).__name__: metric for metric, _ in metrics(spectrum)}
    both["rke"] = VendiScore(KERNELS[0], order=2, spectrum=SPECTRA[spectrum]).to(x.device)
    collection = MetricCollection(both)
    for batch_x, batch_t in zip(x.split(20), t.split(20), strict=True):
        collection.update(x=batch_x, t=batch_t)
    scores = {type(one).__name__: expected(one, features) for one, features in metrics(spectrum)}
    scores["rke"] = float(functional.rke(x, KERNELS[0], spectrum=SPECTRA[spectrum]))
    assert {k: float(v) for k, v in collection.compute().items()} == pytest.approx(scores, rel=1e-9)
    groups = {frozenset(names) for names in collection.compute_groups.values()}
    assert frozenset({"VendiScore", "rke"}) in groups
    assert len(groups) == (2 if spectrum == "exact" else 3)
    assert sum(map(len, groups)) == len(both)


@spectra
@early
def test_copies_go_on_by_themselves_and_leave_the_original_alone(spectrum):
    for metric, features in metrics(spectrum):
        assert not fed(metric, [each[:20] for each in features], [3]).state_dict()
        metric.persistent(True)
        saved = metric.state_dict()
        copies = [*(metric.clone() for _ in range(3)), pickle.loads(pickle.dumps(metric))]
        for loaded in copies[:2]:
            loaded.reset()
            loaded.load_state_dict(saved)
        for other in copies:
            fed(other, [each[20:] for each in features], [7])
            assert float(other.compute()) == pytest.approx(expected(metric, features), rel=1e-9)
        start = expected(metric, [each[:20] for each in features])
        assert float(metric.compute()) == pytest.approx(start, rel=1e-9)


CASTS = {
    "half": lambda metric: metric.half(),
    "set_dtype": lambda metric: metric.set_dtype(torch.float16),
    "to": lambda metric: metric.to(torch.bfloat16),
    "of a model": lambda metric: torch.nn.ModuleList([metric]).to(torch.float16),
    "device": lambda metric: metric.to(metric.device),
}


@spectra
@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_no_cast_costs_precision(spectrum, cast):
    for metric, features in metrics(spectrum):
        for batch in zip(*(each.split(20) for each in features), strict=True):
            cast(metric)
            metric.update(*batch)
        cast(metric)
        assert float(metric.compute()) == pytest.approx(expected(metric, features), rel=1e-12)
        metric.to("meta")
        states = [getattr(metric, name) for name in metric._defaults]
        kept = [*states, metric] if spectrum == "random Fourier" else [*itertools.chain(*states)]
        assert {each.device.type for each in kept} == {"meta"}


@spectra
def test_refused_batches_leave_no_trace(spectrum):
    for metric, features in metrics(spectrum):
        bad = features[0].clone()
        bad[7, 0] = float("nan")
        fed(metric, features)
        with pytest.raises(ValueError, match="NaN or infinity, first in row 7"):
            metric.update(bad, *features[1:])
        if len(features) == 2:
            with pytest.raises(ValueError, match="the same items, got n = 60 and n = 59"):
                metric.update(features[0], features[1][:59])
        assert float(metric.compute()) == pytest.approx(expected(metric, features), rel=1e-9)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="order must be greater than 0"):
        VendiScore(Gaussian(1.0), order=0)
    with pytest.raises(ValueError, match="metrics take batches of features"):
        ConditionalVendiScore(Gaussian(1.0), Precomputed(torch.eye(3)))
