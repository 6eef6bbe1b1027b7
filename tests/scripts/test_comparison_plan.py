"""Which settings are tried, which runs are made, and what a run draws in which order."""

import json
from dataclasses import replace

import pytest
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, StableDiffusionXLPipeline

from scripts.comparison.candidates import (
    METHODS,
    OURS,
    OURS_DEFAULT,
    OURS_STRENGTHS,
    UNGUIDED,
    Candidate,
    ablations,
    at,
    curve,
    ours,
    sweep,
    unguided,
)
from scripts.comparison.plan import (
    INTERLEAVED_FINAL,
    OTHER_BATCHES,
    OTHER_SAMPLERS,
    Plan,
)
from scripts.comparison.prompts import Prompts
from scripts.comparison.trials import (
    IN_TURN,
    INTERLEAVED,
    SAMPLERS,
    How,
    ImageGenerator,
    Trial,
    samplers_of,
)
from tests.helpers.emoji_prompts import asked
from vendi_guidance.comparison.baselines import LimitedInterval, Unguided
from vendi_guidance.comparison.methods import Sample
from vendi_guidance.comparison.selection import Select, SelectPreviews

HOW = How(3, IN_TURN, "ddim", 12, 2)
EAR, LEG, NOSE = (asked(concept) for concept in ("ear", "leg", "nose"))
DARK = asked("leg", tone="dark")
PLAN = Plan(
    list(METHODS),
    5.0,
    Prompts((EAR,), (asked("ear", tone="dark"),)),
    Prompts((LEG, NOSE), (DARK,)),
    Prompts((LEG,), (DARK,)),
    Prompts(("nose",)),
    HOW,
    (0, 100),
    False,
)
QUICK = replace(PLAN, quick=True)


def trial(protocol: str, prompts=(EAR, DARK, NOSE), **how) -> Trial:
    return Trial(unguided(5.0), prompts, 100, HOW._replace(protocol=protocol, **how))


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_makes_its_method_and_can_be_written_down(method):
    family = METHODS[method]
    for settings in family.settings:
        for strength in family.strengths:
            candidate = at(method, strength, settings, 5.0)
            candidate.build()
            assert candidate.strength == strength
            assert candidate.other_settings == settings
            json.dumps(candidate.settings)


def test_every_ablation_makes_ours():
    for candidate in ablations(5.0).values():
        assert candidate.method == OURS
        assert candidate.strength == OURS_DEFAULT
        candidate.build()


def test_the_default_of_ours_is_on_its_curve():
    assert OURS_DEFAULT in OURS_STRENGTHS


def test_the_sweep_has_all_settings_of_methods_with_a_choice_after_the_unguided():
    found = sweep(5.0, ["unguided", "cads", "select"])
    assert found[0] == Candidate(UNGUIDED, {}, 5.0)
    assert [one.method for one in found[1:]] == ["cads"] * len(METHODS["cads"].settings)
    assert len({one.strength for one in found[1:]}) == 1


def test_a_curve_has_every_strength_with_the_settings_chosen():
    found = curve("cads", {"tau1": 0.4}, 5.0, quick=False)
    assert [one.settings for one in found] == [
        {"tau1": 0.4, "scale": scale} for scale in METHODS["cads"].strengths
    ]
    assert curve(UNGUIDED, {}, 5.0, quick=False) == []


def test_a_curve_over_the_scale_of_cfg_leaves_out_the_unguided_but_not_a_selection():
    scales = [one.guidance_scale for one in curve("classifier-free-scale", {}, 2.0, quick=False)]
    assert scales == [3.0, 1.0]
    assert [one.guidance_scale for one in curve("select", {}, 2.0, quick=False)] == [2.0, 1.0]


def test_a_quick_curve_has_one_strength_and_of_ours_two():
    assert len(curve("cads", {}, 5.0, quick=True)) == 1
    of_ours = [one.strength for one in curve(OURS, {}, 5.0, quick=True)]
    assert of_ours == list(dict.fromkeys((OURS_DEFAULT, OURS_STRENGTHS[-1])))


def test_settings_are_told_in_words():
    assert Candidate("cads", {"scale": 1.0, "tau1": None}, 5.0).in_words() == "scale 1.0, tau1 none"
    assert Candidate("select", {"pool": 4}, 2.0).in_words() == "CFG scale 2.0, pool 4"


def test_sweep_and_ablations_have_the_tuning_prompts_and_the_first_seed():
    trials = [*PLAN.sweep(), *PLAN.ablations().values()]
    assert {(one.prompts, one.seed, one.how) for one in trials} == {(PLAN.tuning.all, 0, HOW)}
    assert QUICK.sweep() == [] and QUICK.ablations() == {}


def test_curves_are_of_all_methods_with_the_settings_chosen():
    trials = PLAN.curves({"cads": {"tau1": 0.4}})
    assert trials[0].candidate == unguided(5.0)
    assert list(dict.fromkeys(one.candidate.method for one in trials)) == list(METHODS)
    of_cads = [one.candidate for one in trials if one.candidate.method == "cads"]
    assert all(one.other_settings == {"tau1": 0.4} for one in of_cads)
    assert {(one.prompts, one.seed) for one in trials} == {(PLAN.reported.all, 0)}


def test_the_unguided_and_ours_at_its_default_have_further_seeds():
    other = at("cads", 0.5, {}, 5.0)
    mains = PLAN.mains(other)
    assert mains == [unguided(5.0), other, *PLAN.ours()]
    assert PLAN.mains(unguided(5.0)) == [unguided(5.0), *PLAN.ours()]
    further = [(one.candidate, one.seed) for one in PLAN.further_seeds()]
    assert further == [(unguided(5.0), 100), (PLAN.ours()[0], 100)]
    assert replace(PLAN, seeds=(0,)).further_seeds() == []


def test_other_finals_are_interleaved_and_have_other_samplers_steps_and_batches():
    mains = PLAN.mains(at("cads", 0.5, {}, 5.0))
    of_kind = PLAN.others(mains)
    interleaved = of_kind[INTERLEAVED_FINAL]
    assert [one.candidate for one in interleaved] == mains
    assert {(one.prompts, one.how.protocol) for one in interleaved} == {((LEG, DARK), INTERLEAVED)}
    hows = [(one.how.sampler, one.how.steps) for one in of_kind[OTHER_SAMPLERS]]
    once = [("ddim", 12), ("ddim", 8), ("ddim", 25), ("ddim", 50)]
    assert hows == (once + [(name, 12) for name in list(SAMPLERS)[1:]]) * 2
    assert {one.candidate.method for one in of_kind[OTHER_SAMPLERS]} == {UNGUIDED, OURS}
    assert [one.how.batch_size for one in of_kind[OTHER_BATCHES]] == [2, 4, 1]
    assert QUICK.others(mains) == {}


def test_without_ours_nothing_of_it_is_drawn():
    others = replace(PLAN, methods=[UNGUIDED, "cads"])
    assert others.ours() == [] and others.ablations() == {}
    finals = [one for some in others.others([unguided(5.0)]).values() for one in some]
    assert OURS not in {one.candidate.method for one in finals}


def test_in_turn_no_batch_holds_two_prompts():
    batches = trial(IN_TURN).batches()
    assert [[sample.prompt for sample in batch] for batch in batches] == [
        *([EAR, EAR], [EAR], [DARK, DARK], [DARK], [NOSE, NOSE], [NOSE])
    ]


def test_interleaved_every_prompt_has_its_turn_and_is_in_no_batch_twice():
    batches = trial(INTERLEAVED).batches()
    assert [sample.prompt for batch in batches for sample in batch] == [EAR, DARK, NOSE] * 3
    assert {len(batch) for batch in batches[:-1]} == {2}
    for batch in trial(INTERLEAVED, batch_size=100).batches():
        assert len({sample.prompt for sample in batch}) == len(batch) == 3


def test_a_picture_has_the_same_seed_in_any_protocol():
    samples = [sample for batch in trial(IN_TURN).batches() for sample in batch]
    assert samples[:4] == [Sample(EAR, 100), Sample(EAR, 101), Sample(EAR, 102), Sample(DARK, 103)]
    others = [sample for batch in trial(INTERLEAVED).batches() for sample in batch]
    assert set(others) == set(samples) and len(samples) == trial(IN_TURN).pictures == 9


def test_steps_are_those_of_all_images_drawn():
    selected = replace(trial(IN_TURN), candidate=at("select", 5.0, {"pool": 4}, 5.0))
    assert trial(IN_TURN).steps == 9 * 12
    assert selected.steps == 4 * 9 * 12 and selected.pictures == 9


class ModelOf:
    """As much of a pipeline as `samplers_of` looks at."""

    def __init__(self, scheduler) -> None:
        self.scheduler = scheduler


def test_the_models_own_sampler_comes_first():
    own = EulerDiscreteScheduler()
    found = samplers_of(ModelOf(own))
    assert list(found) == ["euler", "ddim", "dpm", "euler-ancestral"]
    assert found["euler"] is own
    assert list(samplers_of(ModelOf(DDIMScheduler()))) == list(SAMPLERS)


@pytest.fixture(scope="module")
def generator(tiny_sdxl_folder) -> ImageGenerator:
    pipe = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    pipe.set_progress_bar_config(disable=True)
    return ImageGenerator(pipe, samplers_of(pipe))


@pytest.mark.parametrize(
    ("method", "scale", "each"),
    [
        (Unguided(), 5.0, 20),
        (Unguided(), 1.0, 10),
        (LimitedInterval(0.3, 0.7), 5.0, 14),
        (Select(pool=3), 5.0, 60),
        (SelectPreviews(pool=3, preview_steps=2), 5.0, 32),
    ],
    ids=str,
)
def test_evaluations_are_those_that_the_network_made(generator, method, scale, each):
    batches, told = trial(IN_TURN, prompts=(EAR,)).batches(), []
    drawn = generator.draw(method, batches, scale, HOW._replace(steps=10), told.append)
    assert drawn.evaluations == 3 * each
    assert sum(told) == 3 * method.steps_per_image(10)
    assert len(drawn.images) == 3 and drawn.images[0].size == (64, 64)
    assert not generator.pipe.unet.conv_in._forward_hooks


def test_a_trial_of_ours_draws_what_is_asked_for(generator):
    one = Trial(ours(OURS_DEFAULT, 5.0), (EAR, DARK), 0, HOW._replace(steps=4))
    again = [generator.run(one) for _ in range(2)]
    assert [len(drawn.images) for drawn in again] == [6, 6]
    assert again[0].images == again[1].images
    assert torch.is_grad_enabled()
