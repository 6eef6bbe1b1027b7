"""Which settings are tried, which runs are made, and what a run draws in which order."""

import json

import pytest
from diffusers import DDIMScheduler, EulerDiscreteScheduler

from scripts.comparison.candidates import (
    CONDITIONAL,
    METHODS,
    OTHER_SCALE,
    SWEEPS,
    UNCONDITIONAL,
    UNGUIDED,
    Candidate,
    sweep,
)
from scripts.comparison.plan import Plan, split_prompts
from scripts.comparison.trials import IN_TURN, INTERLEAVED, Trial, samplers_of
from scripts.demo.emoji import TONES
from vendi_guidance.guidance.objectives import OBJECTIVES

OWN, OTHER = "DDIMScheduler", "EulerDiscreteScheduler"


def plan(samplers=(OWN, OTHER)) -> Plan:
    candidates = sweep(5.0, list(METHODS), False)
    return Plan(candidates, ("ear",), ("leg", "nose"), ("nose",), ("leg",), 3, (0, 100), samplers)


def trial(protocol: str, prompts=("ear", "leg", "nose")) -> Trial:
    return Trial(Candidate(UNGUIDED, {}, 5.0), prompts, 3, 100, protocol, OWN)


@pytest.mark.parametrize("method", SWEEPS)
def test_every_setting_of_the_sweep_makes_its_method_and_can_be_written_down(method):
    assert method in METHODS
    settings = [json.dumps(given, sort_keys=True) for given in SWEEPS[method]]
    assert len(set(settings)) == len(settings)
    for given in SWEEPS[method]:
        Candidate(method, given, 5.0).build()


def test_every_objective_is_tried_in_both_spaces_with_both_step_rules():
    tried = {
        (given["objective"], given["space"], given["step_rule"])
        for method in (UNCONDITIONAL, CONDITIONAL)
        for given in SWEEPS[method]
        if "preset" not in given
    }
    assert tried >= {
        (objective, space, rule)
        for objective in OBJECTIVES
        for space in ("latent", "denoised")
        for rule in ("normalized", "adaptive")
    }


def test_the_unguided_comes_first_whatever_is_asked_for():
    found = sweep(5.0, ["cads"], quick=False)
    assert found[0] == Candidate(UNGUIDED, {}, 5.0)
    assert {one.method for one in found[1:]} == {"cads"}


def test_other_scales_are_other_than_the_one_compared_at():
    found = sweep(2.0, [OTHER_SCALE], quick=False)
    assert [one.guidance_scale for one in found] == [2.0, 3.0, 1.0]


def test_a_quick_sweep_has_one_setting_of_each_method():
    assert [one.method for one in sweep(5.0, list(METHODS), quick=True)] == list(METHODS)


def test_settings_are_told_in_words():
    assert Candidate("cads", {"scale": 1.0, "tau1": None}, 5.0).in_words() == "scale 1.0, tau1 none"
    assert Candidate(OTHER_SCALE, {}, 2.0).in_words() == "classifier-free scale 2.0"


def test_the_sweep_has_a_run_of_each_contender_on_tuning_prompts():
    made = plan()
    assert [one.candidate for one in made.sweep()] == list(made.candidates)
    assert {(one.prompts, one.seed, one.protocol, one.sampler) for one in made.sweep()} == {
        (("ear",), 0, IN_TURN, OWN)
    }


def test_finals_have_every_method_in_turn_ours_interleaved_and_the_best_with_another_sampler():
    made = plan()
    groups = made.finals(made.firsts())
    assert all([one.seed for one in group] == [0, 100] for group in groups)
    for one in (one for group in groups for one in group):
        expected = ("nose",) if one.protocol == INTERLEAVED else ("leg", "nose")
        assert one.prompts == (("leg",) if one.sampler == OTHER else expected)
    kinds = [(group[0].protocol, group[0].sampler, group[0].candidate.method) for group in groups]
    assert kinds == [
        *((IN_TURN, OWN, method) for method in METHODS),
        *((INTERLEAVED, OWN, method) for method in (UNGUIDED, UNCONDITIONAL, CONDITIONAL)),
        *((IN_TURN, OTHER, method) for method in (UNGUIDED, CONDITIONAL)),
    ]


def test_with_one_sampler_there_are_no_finals_of_a_second():
    made = plan(samplers=(OWN,))
    assert {one.sampler for group in made.finals(made.firsts()) for one in group} == {OWN}


def test_in_turn_no_batch_holds_two_prompts():
    batches = trial(IN_TURN).batches(2)
    assert [[sample.prompt for sample in batch] for batch in batches] == [
        *(["ear", "ear"], ["ear"], ["leg", "leg"], ["leg"], ["nose", "nose"], ["nose"])
    ]


def test_interleaved_every_variation_of_every_prompt_has_its_turn():
    batches = trial(INTERLEAVED).batches(2)
    words = [sample.words for batch in batches for sample in batch]
    prompts = ["ear", "leg", "nose"]
    tones = [f"{prompt}, {tone} skin tone" for tone in TONES for prompt in prompts]
    assert words == [*prompts, *tones] * 3
    assert {len(batch) for batch in batches[:-1]} == {2}


def test_interleaved_no_batch_holds_the_same_words_twice():
    for batch in trial(INTERLEAVED, prompts=("ear", "leg")).batches(100):
        assert len({sample.words for sample in batch}) == len(batch) == 14


def test_a_picture_has_the_same_seed_in_any_protocol():
    in_turn, interleaved = trial(IN_TURN), trial(INTERLEAVED)
    samples = [sample for batch in in_turn.batches(2) for sample in batch]
    first = [("ear", 100), ("ear", 101), ("ear", 102), ("leg", 103)]
    assert [(sample.prompt, sample.seed) for sample in samples[:4]] == first
    others = [sample for batch in interleaved.batches(2) for sample in batch]
    assert sorted(sample for sample in others if sample.tone is None) == sorted(samples)
    assert (in_turn.pictures, interleaved.pictures) == (len(samples), len(others)) == (9, 63)
    assert len({sample.seed for sample in others}) == 63


def test_what_is_not_reported_is_for_tuning(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("leg\n\n ear \n")
    assert split_prompts(file, ["ear", "nose", "leg", "foot"]) == (["nose", "foot"], ["leg", "ear"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ear\ncat\n", r"knows no 'cat', which .*prompts.txt asks for"),
        ("ear\near\n", r"asks for 'ear' more than once"),
        ("ear\nleg\n", r"asks for 2 of the 2 concepts"),
        ("\n", r"asks for 0 of the 2 concepts"),
    ],
)
def test_prompts_that_cannot_be_split_are_refused(tmp_path, text, message):
    file = tmp_path / "prompts.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        split_prompts(file, ["ear", "leg"])


class ModelOf:
    """As much of a pipeline as `samplers_of` looks at."""

    def __init__(self, scheduler) -> None:
        self.scheduler = scheduler


def test_the_second_sampler_is_euler_unless_the_model_has_it():
    assert list(samplers_of(ModelOf(DDIMScheduler()), None)) == [OWN, OTHER]
    assert list(samplers_of(ModelOf(EulerDiscreteScheduler()), None)) == [OTHER, OWN]
    assert list(samplers_of(ModelOf(DDIMScheduler()), "dpm"))[1] == "DPMSolverMultistepScheduler"


def test_a_second_sampler_that_is_the_first_is_refused():
    with pytest.raises(ValueError, match="own sampler is DDIMScheduler: name another"):
        samplers_of(ModelOf(DDIMScheduler()), "ddim")
