"""Each setting is said once, and everything that offers settings offers these."""

import dataclasses
import inspect
from pathlib import Path

import pytest
from diffusers import FluxPipeline, PixArtAlphaPipeline, StableDiffusionXLPipeline

from vendi_guidance import (
    Published,
    Rounds,
    VendiGuidance,
    VendiGuidedFluxPipeline,
    VendiGuidedPixArtAlphaPipeline,
    VendiGuidedSDXLPipeline,
)
from vendi_guidance.guidance.engine import WAYS
from vendi_guidance.guidance.settings import (
    NOT_GIVEN,
    PROPOSALS,
    SETTINGS,
    described,
    shown,
)

PAGE = Path(__file__).parents[2] / "docs" / "dial.md"
GUIDED = {
    VendiGuidedSDXLPipeline: StableDiffusionXLPipeline,
    VendiGuidedFluxPipeline: FluxPipeline,
    VendiGuidedPixArtAlphaPipeline: PixArtAlphaPipeline,
}


def test_guidance_takes_every_setting():
    taken = inspect.signature(VendiGuidance).parameters
    assert set(SETTINGS) <= set(taken)
    assert all(taken[name].default is NOT_GIVEN for name in SETTINGS)
    assert not any(it.kind is it.VAR_KEYWORD for it in taken.values())


@pytest.mark.parametrize(("guided", "stock"), GUIDED.items())
def test_a_guided_call_shows_the_stock_parameters_and_ours(guided, stock):
    theirs = inspect.signature(stock.__call__).parameters
    ours = inspect.signature(guided.__call__).parameters
    assert [name for name in ours if not name.startswith("diversity")] == list(theirs)
    assert {name: ours[name].default for name in theirs} == {
        name: it.default for name, it in theirs.items()
    }
    added = {name.removeprefix("diversity_") for name in ours.keys() - theirs.keys()}
    assert added == {*SETTINGS, "diversity", "memory", "preset", "undistilled", "window"}


@pytest.mark.parametrize("guided", GUIDED)
def test_help_explains_every_setting(guided):
    for kind in (Rounds, Published):
        for setting in dataclasses.fields(kind):
            assert f"diversity_{setting.name} (" in guided.__call__.__doc__
            assert f"{setting.name} (" in VendiGuidance.__doc__
            first = f"{setting.name} ({described(setting.metadata, setting.default)})"
            assert first in " ".join(kind.__doc__.split())


@pytest.mark.parametrize(
    ("name", "value"), [("sigma_latent", 0.5), ("sigma_prompt", 0.2), ("truncation", 3)]
)
def test_none_can_be_set_where_it_is_a_value(name, value):
    given = Rounds(**{name: value})
    assert getattr(given.changed(**{name: NOT_GIVEN}), name) == value
    assert getattr(given.changed(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["scale", "every", "objective", "space", "level", "cfg"])
def test_none_is_refused_where_it_is_no_value(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got None"):
        Rounds().changed(**{name: None})


def test_a_setting_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(TypeError, match=r"no setting 'scael': the settings are objective, scale"):
        VendiGuidance(scael=3)


def test_repr_says_the_settings_of_now():
    guidance = VendiGuidance(Rounds(level=0.3))
    guidance.settings = Published(every=7)
    assert "every=7" in repr(guidance) and "SlidingWindow(300)" in repr(guidance)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({}, Rounds()),
        ({"strength": 0.7}, Rounds(strength=0.7)),
        ({"strength": 1, "scale": 0.1, "rounds": 2}, Rounds(scale=0.1, rounds=2)),
        ({"objective": Rounds(level=0.3), "cfg": 0.1}, Rounds(level=0.3, cfg=0.1)),
        ({"preset": "published"}, Published()),
        ({"preset": "published", "strength": 0}, Published(scale=0)),
        ({"preset": "published", "level": 0.3}, Published()),
        ({"every": 5}, Published(every=5)),
        ({"objective": Published(every=5), "scale": 0.1}, Published(every=5, scale=0.1)),
        ({"objective": Published(every=5), "strength": 1}, Rounds(strength=1)),
        ({"level": 0.3, "every": 5}, Rounds(level=0.3)),
        ({"preset": "published", "rounds": 4}, Published()),
    ],
    ids=str,
)
def test_keyword_arguments_pick_the_algorithm_that_they_mean(given, settings):
    assert VendiGuidance(**given).settings == settings


def test_each_type_has_only_its_own_settings():
    assert {*vars(Rounds())} - {*vars(Published())} == {
        *("budget", "rounds", "candidates", "level", "cfg", "proposal")
    }
    assert {*vars(Published())} - {*vars(Rounds())} == {"every"}
    for kind, name in ((Rounds, "every"), (Published, "level")):
        with pytest.raises(TypeError, match=name):
            kind(**{name: 5})
    assert dataclasses.replace(Rounds(level=0.3), strength=1) == Rounds(level=0.3, scale=5.3)


def test_there_is_at_least_one_round():
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 1, got 0"):
        Rounds(rounds=0)


def test_each_proposal_has_a_way_to_make_moves():
    with pytest.raises(ValueError, match="proposal must be one of gradient, prompt, got 'back'"):
        Rounds(proposal="back")
    assert tuple(WAYS) == PROPOSALS
    assert VendiGuidance(proposal="prompt").settings == Rounds(proposal="prompt")


def settings_table() -> str:
    """The table of settings in docs/dial.md."""
    lines = ["| setting | `Rounds` | `Published` | |", "|---|---|---|---|"]
    for name, meanings in SETTINGS.items():
        for setting in meanings:
            values = []
            for kind in (Rounds, Published):
                own = {it.name: it for it in dataclasses.fields(kind)}.get(name)
                has = own is not None and own.metadata["help"] == setting.metadata["help"]
                values.append(str(shown(own.default, own.metadata)) if has else "")
            typical = setting.metadata["typical"]
            more = f" Typical: {typical}." if typical else ""
            text = setting.metadata["help"] + more
            lines.append(f"| `{name}` | {' | '.join(values)} | {text} |")
    return "\n".join(lines)


def test_the_documentation_lists_the_settings_as_they_are():
    assert settings_table() in PAGE.read_text("utf-8")


def test_a_space_of_ones_own_is_kept_as_it_is():
    class Space:
        needs_prediction = False

        def view(self, *_):
            raise NotImplementedError

    space = Space()
    assert VendiGuidance(space=space).settings.build_space() is space
