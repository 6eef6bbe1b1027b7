"""What a user asks of a run: options, settings files and the order of images."""

import json

import diffusers
import pytest
from hypothesis import given, settings, strategies as st

from vendi_guidance import VendiGuidance, load_settings
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.pipelines import guided_class
from vendi_guidance.runs.plan import Manifest, Plan, RunOptions, Sampling, save_settings
from vendi_guidance.runs.setup import check_prompts_are_seen
from vendi_guidance.storage.prompt_files import open_prompts


@pytest.fixture
def path(tmp_path):
    save_settings(tmp_path / "settings.json", {"diversity": 0.3, "rounds": 5}, {"model": "mine"})
    return tmp_path / "settings.json"


def test_settings_are_arguments_of_a_guided_pipeline_or_of_the_guidance_itself(path):
    assert load_settings(path) == {"diversity": 0.3, "diversity_rounds": 5}
    settings = VendiGuidance(**load_settings(path, prefix="")).settings
    assert (settings.rounds, settings.diversity) == (5, 0.3)
    with pytest.raises(FileNotFoundError, match=r"no\.json"):
        load_settings(path.with_name("no.json"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"speed": 1}}, "there is no setting 'speed'"),
        ({"settings": {"diversity": 2}}, "between 0.*got 2"),
        ({"settings": {"level": 10**400}}, "level must be .*got 1000"),
        ({"settings": {"rounds": "many"}}, "rounds must be .*'many'"),
        ({"settings": [1]}, "not a file of guidance settings"),
        ('{"diversity": 0.3}', "its format is None"),
        ({"format": "recipe"}, "its format is recipe"),
        ({"version": 9}, "version 9"),
        *(
            (content, "")
            for content in ("", "{", "[]", "3", "[" * 100_000, '{"settings": {}}', "\0")
        ),
    ],
)
def test_an_invalid_settings_file_is_named(path, changes, words):
    changed = changes
    if isinstance(changes, dict):
        changed = json.dumps(json.loads(path.read_text()) | changes)
    path.write_text(changed)
    with pytest.raises(ValueError, match=f"(?s)settings.json.*{words}"):
        load_settings(path)


def test_a_pipeline_without_prompt_embeddings_is_refused_if_prompts_are_compared():
    guided = guided_class(diffusers.KandinskyV22Pipeline)  # only its prior reads prompts
    with pytest.raises(ValueError, match="KandinskyV22Pipeline gives guidance no prompt embedd"):
        check_prompts_are_seen(guided, Rounds())
    check_prompts_are_seen(guided, Rounds(objective="vendi"))
    check_prompts_are_seen(guided, Rounds(diversity=0.0))
    check_prompts_are_seen(guided_class(diffusers.StableDiffusion3Pipeline), Rounds())


COUNTS = st.integers(1, 7)


def plan_of(folder, prompts, images_per_prompt, at_a_time):
    path = folder / "prompts.txt"
    path.write_text("\n".join(f"prompt {i}" for i in range(prompts)))
    options = RunOptions(images_per_prompt=images_per_prompt, batch_size=at_a_time)
    return Plan(options, open_prompts(str(path)), Sampling({}, {}), {}, Manifest({}, {}))


@settings(deadline=None)  # writing files may be slow
@given(COUNTS, COUNTS, COUNTS, COUNTS, st.integers(0, 60))
def test_each_image_is_planned_once_and_a_resumed_plan_is_the_rest(
    tmp_path_factory, prompts, images_per_prompt, at_a_time, side_by_side, done
):
    plan = plan_of(tmp_path_factory.mktemp("plan"), prompts, images_per_prompt, at_a_time)
    items = list(plan.items(0, side_by_side))
    assert sorted(item.number for item in items) == list(range(plan.total))
    assert all(item.prompt == f"prompt {item.number // images_per_prompt}" for item in items)
    done = min(done, plan.total)
    assert list(plan.items(done, side_by_side)) == items[done:]
