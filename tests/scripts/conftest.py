"""A training of a flow model in small."""

from functools import partial

import pytest

from scripts.demo import flow, held_out
from scripts.demo.flow import Flow
from scripts.demo.held_out import measure


@pytest.fixture
def small_flow(monkeypatch: pytest.MonkeyPatch) -> Flow:
    """The shape of a small transformer with small text encoders, whose model card counts one image
    of each prompt after one step."""
    monkeypatch.setattr(flow, "TEXT_WIDTHS", (32, 32))
    monkeypatch.setattr(held_out, "measure", partial(measure, each=(1, 1)))
    monkeypatch.setitem(flow.SAMPLING, "num_inference_steps", 1)
    return Flow(heads=1, layers=1, patch=2, tokens=16, shift=3.0)
