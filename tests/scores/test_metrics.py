import doctest
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torchmetrics import MetricCollection

import vendi_guidance.scores.metrics
from tests.helpers.metrics_worker import (
    KERNELS,
    OF_ITEMS,
    OF_PROMPTS,
    SHARES,
    SPECTRA,
    metrics,
    sample,
)
from vendi_guidance.kernels.custom import Precomputed
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.functional import (
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    rke,
    vendi,
)
from vendi_guidance.scores.metrics import (
    ConditionalRKEScore,
    ConditionalVendiScore,
    InformationRKEScore,
    InformationVendiScore,
    RKEScore,
    VendiScore,
)
from vendi_guidance.scores.spectra import Exact, Nystrom, RandomFourier

SCORES = {
    VendiScore: vendi,
    RKEScore: rke,
    ConditionalVendiScore: conditional_vendi,
    ConditionalRKEScore: conditional_rke,
    InformationVendiScore: information_vendi,
    InformationRKEScore: information_rke,
}
CUTS = {"at once": [], "evenly": [20, 40], "unevenly": [1, 2, 50], "one by one": list(range(1, 60))}

spectra = pytest.mark.parametrize("spectrum", SPECTRA)
# torchmetrics says it before us
early = pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")


def expected(metric, features) -> float:
    kernels = KERNELS[: len(features)]
    return float(SCORES[type(metric)](*features, *kernels, spectrum=metric.spectrum))


def fed(metric, features, cuts=(20, 40)):
    for batch in zip(*(each.tensor_split(list(cuts)) for each in features), strict=True):
        metric.update(*batch)
    return metric


# What they compute


@spectra
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_batches_however_cut_score_as_the_whole_does(spectrum, cuts):
    for metric, features in metrics(spectrum):
        score = fed(metric, features, cuts).compute()
        assert score.shape == () and score.dtype == torch.float64
        assert float(score) == pytest.approx(expected(metric, features), rel=1e-9)


@pytest.mark.parametrize("spectrum", [Exact(), RandomFourier(64), Nystrom(60)])
@pytest.mark.parametrize("order", [0.5, 1, float("inf")])
@pytest.mark.parametrize("truncation", [None, 7])
def test_order_truncation_and_spectrum_are_those_of_the_scores(spectrum, order, truncation):
    settings = {"order": order, "truncation": truncation, "spectrum": spectrum}
    x, t = sample()
    for one, features in (
        (VendiScore, (x,)),
        (ConditionalVendiScore, (x, t)),
        (InformationVendiScore, (x, t)),
    ):
        kernels = KERNELS[: len(features)]
        score = float(fed(one(*kernels, **settings), features).compute())
        assert score == pytest.approx(float(SCORES[one](*features, *kernels, **settings)), rel=1e-6)


def test_cosine_kernels_keep_the_features():
    x, t = sample()
    metric = fed(InformationVendiScore(Cosine(), Cosine()), (x, t))
    score = float(information_vendi(x, t, Cosine(), Cosine()))
    assert float(metric.compute()) == pytest.approx(score)


@spectra
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_features_of_low_precision_and_arrays_are_read_as_the_scores_read_them(spectrum, dtype):
    for metric, features in metrics(spectrum):
        features = [each.to(dtype) for each in features]
        score = expected(metric, features)
        assert float(fed(metric, features).compute()) == pytest.approx(score, rel=1e-5)
        metric.reset()
        metric.update(*(each.numpy() for each in features))
        assert float(metric.compute()) == pytest.approx(score, rel=1e-5)


def test_sums_do_not_grow_with_the_items():
    metric = ConditionalVendiScore(*KERNELS, spectrum=RandomFourier(16))
    for _ in range(5):
        metric.update(*sample())
    assert {name: tuple(state.shape) for name, state in metric.metric_state.items()} == {
        "count": (),
        "sum_joint": (16, 16),
        "sum_t": (16, 16),
    }


def test_the_examples_in_the_docstrings_hold():
    failed, tried = doctest.testmod(vendi_guidance.scores.metrics)
    assert tried >= 6 * 3 and not failed


# More than one of them


@pytest.mark.slow
def test_two_processes_score_as_one_does(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    command += [str(root / "tests/helpers/metrics_worker.py"), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]
    assert len(found[0]) == len(SCORES) * len(SPECTRA) * len(SHARES)
    for spectrum in SPECTRA:
        for metric, features in metrics(spectrum):
            for share in SHARES:
                score = found[0][f"{type(metric).__name__}, {spectrum}, {share}"]
                assert score == pytest.approx(expected(metric, features), rel=1e-9)


@spectra
def test_merged_metrics_have_seen_what_both_have(spectrum):
    for metric, features in metrics(spectrum):
        first, second = metric.clone(), metric.clone()
        fed(first, [each[:10] for each in features], [3])
        fed(second, [each[10:] for each in features])
        first.merge_state(second)
        assert float(first.compute()) == pytest.approx(expected(metric, features), rel=1e-9)


@spectra
def test_a_collection_gives_each_metric_what_it_reads_and_keeps_it_once(spectrum):
    x, t = sample()
    each = {type(metric).__name__: metric for metric, _ in metrics(spectrum)}
    collection = MetricCollection(each)
    for batch_x, batch_t in zip(x.split(20), t.split(20), strict=True):
        collection.update(x=batch_x, t=batch_t)
    found = collection.compute()
    for metric, features in metrics(spectrum):
        score = float(found[type(metric).__name__])
        assert score == pytest.approx(expected(metric, features), rel=1e-9)
    groups = {frozenset(names) for names in collection.compute_groups.values()}
    assert frozenset(one.__name__ for one in OF_ITEMS) in groups
    assert len(groups) == (2 if spectrum == "exact" else 3)
    assert sum(map(len, groups)) == len(OF_ITEMS + OF_PROMPTS)


# The life of one


@spectra
def test_forward_scores_the_batch_and_adds_it_to_the_rest(spectrum):
    for metric, features in metrics(spectrum):
        parts = [[each[rows] for each in features] for rows in (slice(25), slice(25, None))]
        for part in parts:
            x = part[0].clone().requires_grad_()
            score = metric(x, *part[1:])
            assert float(score) == pytest.approx(expected(metric, part), rel=1e-9)
            assert not score.requires_grad
        assert float(metric.compute()) == pytest.approx(expected(metric, features), rel=1e-9)


@spectra
@early
def test_after_reset_nothing_has_been_seen(spectrum):
    for metric, features in metrics(spectrum):
        fed(metric, [each[:30] + 5 for each in features], [4]).compute()
        metric.reset()
        with pytest.raises(ValueError, match=f"{type(metric).__name__} has seen no items"):
            metric.compute()
        assert float(fed(metric, features).compute()) == pytest.approx(expected(metric, features))


@spectra
@pytest.mark.parametrize("copy", [lambda m: m.clone(), lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_go_on_by_themselves(spectrum, copy):
    for metric, features in metrics(spectrum):
        fed(metric, [each[:20] for each in features], [3])
        other = copy(metric)
        fed(other, [each[20:] for each in features], [7])
        assert float(other.compute()) == pytest.approx(expected(metric, features), rel=1e-9)
        start = expected(metric, [each[:20] for each in features])
        assert float(metric.compute()) == pytest.approx(start, rel=1e-9)


@spectra
@early
def test_saved_metrics_go_on_where_they_were_and_leave_what_was_saved_alone(spectrum):
    for metric, features in metrics(spectrum):
        metric.persistent(True)
        saved = fed(metric, [each[:20] for each in features], [3]).state_dict()
        for _ in range(2):
            other = metric.clone()
            other.reset()
            other.load_state_dict(saved)
            assert float(other.compute()) == pytest.approx(float(metric.compute()))
            fed(other, [each[20:] for each in features], [7])
            assert float(other.compute()) == pytest.approx(expected(metric, features), rel=1e-9)


def test_states_are_saved_only_when_asked_for():
    metric, features = next(metrics("random Fourier"))
    assert not fed(metric, features).state_dict()


@spectra
@pytest.mark.parametrize(
    "cast",
    [
        lambda metric: metric.half(),
        lambda metric: metric.set_dtype(torch.float16),
        lambda metric: metric.to(torch.bfloat16),
        lambda metric: torch.nn.ModuleList([metric]).to(torch.float16),
        lambda metric: torch.nn.ModuleList([metric]).half(),
        lambda metric: metric.to("cpu"),
    ],
)
def test_no_cast_costs_precision(spectrum, cast):
    for metric, features in metrics(spectrum):
        cast(metric)
        fed(metric, [each[:20] for each in features], [3])
        cast(metric)
        fed(metric, [each[20:] for each in features], [7])
        cast(metric)
        assert float(metric.compute()) == pytest.approx(expected(metric, features), rel=1e-12)


def test_moving_a_metric_moves_its_states():
    metric = VendiScore(Gaussian(1.0), spectrum=RandomFourier(8)).to("meta")
    assert metric.sum_x.device.type == metric.count.device.type == metric.device.type == "meta"
    assert metric.sum_x.dtype == torch.float64 and metric.count.dtype == torch.int64


@spectra
def test_plot_shows_one_score_or_several(spectrum):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    for metric, features in metrics(spectrum):
        scores = [metric(*(each[:n] for each in features)) for n in (20, 40, 60)]
        for shown in (None, scores[0], scores):
            figure, axes = metric.plot(shown)
            assert isinstance(figure, Figure) and axes.has_data()
            pyplot.close(figure)


@pytest.mark.parametrize("one", SCORES)
def test_torchmetrics_is_told_what_kind_of_metrics_they_are(one):
    assert one.higher_is_better is True
    assert one.is_differentiable is False
    assert one.full_state_update is False
    assert one.plot_lower_bound in (0.0, 1.0) and one.plot_upper_bound is None


# What they refuse


@spectra
def test_batches_of_another_width_are_refused_even_after_reset(spectrum):
    for metric, features in metrics(spectrum):
        metric.update(*features)
        metric.reset()
        with pytest.raises(ValueError, match="batches must agree in d"):
            metric.update(features[0][:, :4], *features[1:])


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


def test_bad_settings_are_refused_at_once():
    with pytest.raises(ValueError, match="order must be greater than 0"):
        VendiScore(Gaussian(1.0), order=0)
    with pytest.raises(ValueError, match="truncation must be a whole number"):
        ConditionalVendiScore(*KERNELS, truncation=0)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `sigma`"):
        RKEScore(Gaussian(1.0), sigma=2)
    for kernel in (Precomputed(torch.eye(3)), lambda a, b: 1.0):
        with pytest.raises(ValueError, match="metrics read features batch by batch"):
            ConditionalRKEScore(Gaussian(1.0), kernel)


def test_random_fourier_features_refuse_kernels_that_have_none():
    metric = VendiScore(Cosine(), spectrum=RandomFourier(8))
    with pytest.raises(ValueError, match="need a Gaussian kernel"):
        metric.update(torch.eye(3))
