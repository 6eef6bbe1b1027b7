"""What published models cost, counted on torch's meta device."""

from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scripts.benchmarks import counted
from scripts.benchmarks.meta import Live, evaluate, on_meta, weights_of
from scripts.benchmarks.published import CARDS, MODELS
from vendi_guidance.guidance.settings import Rounds

PAGE = Path(__file__).parents[2] / "docs" / "your-model.md"
WEIGHTS = {  # network, then text encoders
    "SD 1.5": [859_520_964, 123_060_480],
    "SDXL": [2_567_463_684, 123_060_480, 694_659_840],
    "SD 3.5 medium": [2_243_171_520],
    "PixArt-Σ": [610_856_096],
    "FLUX.1 dev": [11_901_408_320, 123_060_480, 4_762_310_656],
    "FLUX.1 schnell": [11_891_178_560],
    "Z-Image-Turbo": [6_154_908_736, 4_022_468_096],
}
DECODERS = {"SDXL": 83_653_863, "FLUX.1 dev": 83_819_683}


@cache
def smallest():
    return counted.count(MODELS["SD 1.5"])


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_published_number_of_weights(name):
    model, published = MODELS[name], WEIGHTS[name]
    parts = [model.network, *(build for build, _ in model.encoders)][: len(published)]
    assert [weights_of(on_meta(build)) for build in parts] == published
    if name in DECODERS:
        assert weights_of(on_meta(model.decoder)) == DECODERS[name]


@pytest.mark.parametrize("heads", [8, 2])
def test_attention_is_counted_without_its_matrix_in_memory(heads):
    query = torch.empty(1, 8, 512, 64, device="meta")
    key = torch.empty(1, heads, 512, 64, device="meta")
    found = evaluate(F.scaled_dot_product_attention, query, key, key, enable_gqa=heads < 8)
    assert found.flops == 4 * 8 * 512 * 512 * 64
    assert found.output.shape == query.shape
    assert found.activations < 8 * 512 * 512 * query.itemsize


def test_memory_counts_what_lives_at_once_and_no_views():
    x = torch.zeros(1000)
    with Live("cpu") as live:
        y = x + 1
        z = y.view(10, 100).T + 1
        y.add_(1)
        del y
        z = z * 2
        del z
    assert live.peak == 2 * x.nbytes
    assert live.now == 0


def test_the_memory_of_a_chain_of_layers_is_that_of_two_of_them():
    layers = on_meta(lambda: nn.Sequential(*(nn.Linear(64, 64) for _ in range(5))))
    x = torch.empty(32, 64, device="meta", dtype=torch.bfloat16)
    found = evaluate(layers, x)
    assert found.flops == 5 * 2 * 32 * 64 * 64
    assert found.activations == 2 * x.nbytes


def test_evaluations_are_those_that_the_pipeline_makes():
    found = smallest()
    calls = found.steps + 1  # PNDM makes one step twice
    assert (found.steps, found.plain.calls, found.plain.rows) == (50, calls, 2 * calls * 8)
    extra = Rounds.rounds * Rounds.candidates
    assert found.guided.calls == calls + extra
    assert found.guided.rows < found.plain.rows + 8 * extra  # CFG is off until then


def test_guidance_keeps_the_window_and_reads_it_at_least_twice_a_round():
    found = smallest()
    window = 300 * 4 * 64 * 64 * 4
    assert found.plain.window == found.plain.read == 0
    assert window < found.guided.window < found.guidance < 2 * window
    assert found.guided.read >= 2 * Rounds.rounds * window


def test_offloading_needs_less_and_less_memory():
    none, model, sequential = (
        smallest().memory(offload, 8) for offload in ("none", "model", "sequential")
    )
    assert none > model > sequential
    assert all(smallest().fit(card) == ("none", 8) for card in CARDS.values())


def test_the_page_has_what_is_counted():
    page = PAGE.read_text("utf-8")
    operations = counted.costs("SD 1.5", smallest()).split(" | ")[:5]
    assert " | ".join(operations) in page
    assert counted.times("SD 1.5", smallest()) in page
    assert all(f"| {name} |" in page for name in MODELS)
