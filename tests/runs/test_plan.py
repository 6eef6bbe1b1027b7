"""What a user asks of a run: options and the order of images."""

import diffusers
import pytest
from hypothesis import given, settings, strategies as st

from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.pipelines import guided_class
from vendi_guidance.runs.plan import Manifest, Plan, RunOptions, Sampling
from vendi_guidance.runs.setup import check_prompts_are_seen
from vendi_guidance.storage.prompt_files import open_prompts


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
    return Plan(options, open_prompts(str(path)), Sampling({}, {}), Manifest({}, {}))


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
