"""Portraits of the faces demo: what is drawn, how often, and what captions say."""

from itertools import product

import numpy as np
import pytest

from scripts.demo import faces as demo
from tests.conftest import ASSETS
from vendi_guidance.features.probe import Probe
from vendi_guidance.storage.prompt_files import open_prompts

FILES = "faces", "faces-named", "faces-tuning", "faces-tuning-named"


@pytest.fixture(scope="module")
def faces():
    return demo.sample_faces(20_000, seed=0)


@pytest.fixture(scope="module")
def probe():
    return Probe([demo.CONCEPT], list(demo.ATTRIBUTES.items()), demo.CAPTION)


def test_what_captions_name_is_even_and_what_they_leave_open_is_the_commonest_value(faces):
    kinds = faces.kinds[faces.shown]
    for place, values in enumerate(demo.ATTRIBUTES.values()):
        named = faces.named[:, place]
        shares = np.bincount(kinds[named, place], minlength=len(values)) / named.sum()
        # not quite even: some looks that would be common are held out
        assert shares == pytest.approx([1 / len(values)] * len(values), abs=0.06)
        often = demo.ALIKE + (1 - demo.ALIKE) * (demo.COMMON + (1 - demo.COMMON) / len(values))
        assert (kinds[~named, place] == 0).mean() == pytest.approx(often, abs=0.03)
    counts = np.bincount(faces.named.sum(axis=1)) / len(kinds)
    assert counts == pytest.approx(demo.NAMED, abs=0.02)
    alike = (np.where(faces.named, 0, kinds) == 0).all(axis=1)
    assert alike.mean() >= demo.ALIKE - 0.02  # all at once, not each by itself


def test_a_tenth_of_the_looks_is_never_trained(faces):
    assert not any(map(demo.is_held_out, faces.kinds))
    unseen = demo.sample_held_out(50, seed=1)
    assert len(unseen.kinds) == 50 and all(map(demo.is_held_out, unseen.kinds))
    looks = list(product(*map(range, map(len, demo.ATTRIBUTES.values()))))[::16]
    assert np.mean([*map(demo.is_held_out, looks)]) == pytest.approx(0.1, abs=0.01)
    assert not demo.is_held_out([0] * len(demo.ATTRIBUTES))


def test_the_probe_reads_in_captions_what_they_name(faces, probe):
    kinds = [demo.values_of(kind) for kind in faces.kinds[faces.shown[:300]]]
    for look, named in zip(kinds, faces.named, strict=False):
        text = demo.caption(look, named)
        wanted = [value if said else None for value, said in zip(look, named, strict=True)]
        assert probe.asked([text]) == [(demo.CONCEPT, *wanted)]
        assert probe.words((demo.CONCEPT, *wanted)) == text
    probe.check()


def test_prompts_are_what_the_probe_knows_and_tuning_ones_are_apart(probe):
    files = {name: open_prompts(str(ASSETS / "prompts" / f"{name}.txt")).texts for name in FILES}
    for name, prompts in files.items():
        asked = probe.asked(prompts)
        named = [sum(value is not None for value in one[1:]) for one in asked]
        commas = [prompt.count(",") for prompt in prompts]
        assert named == commas  # nothing in them is unknown
        assert {*named} <= ({1, 2, 3} if name.endswith("named") else {0, 1})
    held_out, tuning = ({*files[a], *files[b]} for a, b in (FILES[:2], FILES[2:]))
    assert not held_out & tuning
