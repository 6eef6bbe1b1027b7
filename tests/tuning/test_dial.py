"""What a sweep of the dial says, and how a browser shows its page."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.batches_at_hand import labels_of, report_of
from tests.helpers.browsing import watched
from vendi_guidance.tuning.dial import NO_JUDGE, Point, Score, choose, save_page, scored, verdict


def points(kept: list[list[float]]) -> list[Point]:
    """Points at 0, 0.25, ... of which each judge says what share is kept, give or take 0.1."""
    more = Score("Conditional-Vendi", 2.0, None, None, 2.0)
    judged = [[Score("it", 0.5, None, None, x, (x - 0.1, x + 0.1)) for x in one] for one in kept]
    return [Point(number / 4, None, [more], one, []) for number, one in enumerate(judged)]


@pytest.mark.parametrize(
    ("kept", "value"),
    [
        ([[1.0], [0.99], [0.95], [0.9]], 0.5),
        ([[1.0], [0.9], [0.96], [0.9]], 0.5),
        ([[1.0, 1.0], [0.99, 0.97], [0.99, 0.9]], 0.25),
        ([[1.0], [0.9]], None),
        ([[], []], None),
    ],
)
def test_the_largest_value_that_keeps_enough_by_every_judge_is_chosen(kept, value):
    found = points(kept)
    best = choose(found, 0.95)
    assert (best and best.value) == value
    said = verdict(found, 0.95)
    if value is None:
        assert said.startswith("No value above 0 keeps 0.95") if kept[0] else said == NO_JUDGE
    else:
        assert said.startswith(f"{value:g} is the largest value here that keeps 0.95")
        assert "interval reaches below 0.95" in said


@pytest.fixture(scope="module")
def measured() -> list[Point]:
    """Two values, of which the second is more diverse and names the prompts worse."""
    prompts = [f"{('cat', 'dog')[i % 2]}, number {i // 8}" for i in range(64)]
    named = labels_of(prompts, [one.split(",")[0] for one in prompts])
    cats = labels_of(prompts, ["cat"] * len(prompts))
    given = {"prompts": prompts, "seconds": [0.5] * 64}
    first, second = report_of(64, 10, **given, labels=named), report_of(64, **given, labels=cats)
    return [scored(0.0, first, first, 16.0), scored(0.5, first, second, 18.0)]


def test_scores_are_compared_with_those_at_0(measured):
    at_0, guided = measured
    assert {score.share for score in at_0.diversity + at_0.fidelity} == {1.0}
    total, within = guided.diversity
    assert total.share_interval[0] > 1 and total.low < total.value < total.high
    assert within.low >= 1 and within.share == within.value / at_0.diversity[1].value
    [fidelity] = guided.fidelity
    assert fidelity.share == 0.5 and fidelity.title == "prompt fidelity"
    assert [score.value for score in guided.cost] == [18.0, 0.5]


def test_the_page_keeps_nobody_out(measured, tmp_path, browser):
    settings = {"model": "<b>model</b>", "prompts": 16, "images_per_prompt": 4, "lora": None}
    page = save_page(tmp_path, measured, 0.4, settings)
    with watched(browser, "requestfailed") as (open_page, _):
        for width, scheme in ((1280, "light"), (400, "dark")):
            opened = open_page(page.as_uri(), width, scheme)
            assert opened.title() == "<b>model</b> along the dial"
            assert opened.locator(".along").count() == 2 * 12
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            found = Axe().run(opened)
            assert found.violations_count == 0, found.generate_report()
