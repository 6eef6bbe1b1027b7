"""The order in which a run generates its images."""

from hypothesis import given, settings, strategies as st

from vendi_guidance.runs.manifest import Manifest
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.plan import Plan
from vendi_guidance.runs.sampling import Sampling
from vendi_guidance.storage.prompt_files import open_prompts

COUNTS = st.integers(1, 7)


def plan_of(folder, prompts, images_per_prompt, at_a_time):
    path = folder / "prompts.txt"
    path.write_text("\n".join(f"prompt {i}" for i in range(prompts)))
    options = RunOptions(images_per_prompt=images_per_prompt, batch_size=at_a_time)
    sampling = Sampling(1, None, "guidance_scale", None, None, None, None)
    return Plan(options, open_prompts(str(path)), sampling, {}, Manifest({}, {}, {}))


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


def test_one_prompt_after_the_other_or_a_batch_of_each_for_each_process(tmp_path):
    plan = plan_of(tmp_path, prompts=3, images_per_prompt=4, at_a_time=2)
    assert [item.number for item in plan.items(0, 1)] == list(range(12))
    assert [item.number for item in plan.items(0, 2)] == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11]
