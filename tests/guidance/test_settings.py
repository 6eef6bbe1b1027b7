"""Each setting is said once, and everything that offers settings offers these."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest

from vendi_guidance import Published, Rounds, VendiGuidance
from vendi_guidance.guidance.engine import PROPOSERS
from vendi_guidance.guidance.settings import (
    NOT_GIVEN,
    PROPOSALS,
    SETTINGS,
    _say_what_replaces_rounds_0,
    described,
    shown,
)
from vendi_guidance.runs.pipelines import GUIDED

PAGE = Path(__file__).parents[2] / "docs" / "dial.md"


def test_guidance_takes_every_setting():
    taken = inspect.signature(VendiGuidance).parameters
    assert set(SETTINGS) <= set(taken)
    assert all(taken[name].default is NOT_GIVEN for name in SETTINGS)
    assert not any(it.kind is it.VAR_KEYWORD for it in taken.values())


@pytest.mark.parametrize("guided", GUIDED)
def test_a_guided_call_shows_the_stock_parameters_and_ours(guided):
    theirs = inspect.signature(guided.stock.__call__).parameters
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
            kind_of_value = setting.metadata["type"].__name__
            text = described(setting.metadata, setting.default)
            assert f"{setting.name} ({kind_of_value}): {text}" in " ".join(kind.__doc__.split())


@pytest.mark.parametrize(
    ("name", "value"), [("sigma_latent", 0.5), ("sigma_prompt", 0.2), ("truncation", 3)]
)
def test_none_can_be_set_where_it_is_a_value(name, value):
    given = Rounds(**{name: value})
    assert getattr(given.changed(**{name: NOT_GIVEN}), name) == value
    assert getattr(given.changed(**{name: None}), name) is None


def test_a_setting_that_does_not_exist_is_named_with_those_that_do():
    known = "the settings are strength, objective, scale"
    with pytest.raises(TypeError, match=f"no setting 'scael': {known}"):
        VendiGuidance(scael=3)


def test_the_registered_config_and_repr_say_the_settings_of_now():
    guidance = VendiGuidance(Rounds(level=0.3))
    guidance.settings = Published(every=7)
    config = json.loads(guidance.to_json_string())
    assert (config["every"], config["scale"]) == (7, 0.03)
    assert "level" not in config and {*vars(guidance.settings)} <= config.keys()
    assert "every=7" in repr(guidance) and "SlidingWindow(300)" in repr(guidance)


SHARED = ("objective", "scale", "space", "sigma_latent")
SHARED_BY_ROUNDS, SHARED_BY_PUBLISHED = (
    {name: getattr(settings, name) for name in SHARED} for settings in (Rounds(), Published())
)


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
        ({"rounds": 0, "every": 2}, Published(**SHARED_BY_ROUNDS, every=2)),
        ({"preset": "published", "rounds": 4}, Rounds(**SHARED_BY_PUBLISHED, rounds=4)),
    ],
    ids=str,
)
def test_keyword_arguments_pick_the_algorithm_that_they_mean(given, settings):
    assert VendiGuidance(**given).settings == settings


def test_a_setting_without_effect_is_said(caplog):
    VendiGuidance(level=0.3, every=10)  # its default, which files of earlier versions have
    assert not caplog.messages
    VendiGuidance(level=0.3, every=5)
    assert caplog.messages == ["every=5 has no effect on Rounds"]


def test_each_type_has_only_its_own_settings():
    assert {*vars(Rounds())} - {*vars(Published())} == {
        *("budget", "rounds", "candidates", "level", "cfg", "proposal")
    }
    assert {*vars(Published())} - {*vars(Rounds())} == {"every"}
    for kind, name in ((Rounds, "every"), (Published, "level")):
        with pytest.raises(TypeError, match=name):
            kind(**{name: 5})
    with pytest.raises(ValueError, match=r"rounds must be at least 1, got 0: .* Published\(\)"):
        Rounds(rounds=0)
    assert dataclasses.replace(Rounds(level=0.3), strength=1) == Rounds(level=0.3, scale=5.3)


def test_rounds_0_says_once_what_to_write_instead(caplog):
    _say_what_replaces_rounds_0.cache_clear()
    VendiGuidance(rounds=0)
    VendiGuidance(rounds=0, every=3)
    assert [text for text in caplog.messages if "VendiGuidance(Published(every=...))" in text] == (
        caplog.messages
    )
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "settings", [Rounds(strength=0.7, sigma_prompt=0.2, cfg=0.1), Published(every=3, truncation=5)]
)
def test_a_config_goes_round_trip(settings):
    guidance = VendiGuidance(settings, prompt_input="text", undistilled="adapters")
    guidance.keeps, guidance.record = "call", True  # as between two calls
    guidance.window.resize(7)
    again = VendiGuidance.from_config(json.loads(guidance.to_json_string()))
    assert again.settings == settings
    assert (again.keeps, again.window.size, again.record) == ("call", 7, True)
    assert (again.prompt_input, again.undistilled) == ("text", "adapters")


def test_each_proposal_has_a_way_to_make_moves():
    assert tuple(PROPOSERS) == PROPOSALS
    assert VendiGuidance(proposal="prompt").settings == Rounds(proposal="prompt")


def test_the_documentation_lists_the_settings_as_they_are():
    lines = ["| setting | `Rounds` | `Published` | |", "|---|---|---|---|"]
    for name, meanings in SETTINGS.items():
        for setting in meanings:
            values = []
            for kind in (Rounds, Published):
                own = {it.name: it for it in dataclasses.fields(kind)}.get(name)
                has = own is not None and own.metadata["help"] == setting.metadata["help"]
                values.append(str(shown(own.default, own.metadata)) if has else "")
            typical = setting.metadata["typical"]
            text = setting.metadata["help"] + (f" Typical: {typical}." if typical else "")
            lines.append(f"| `{name}` | {' | '.join(values)} | {text} |")
    assert "\n".join(lines) in PAGE.read_text("utf-8")


def test_a_space_of_ones_own_is_kept_as_it_is():
    class Space:
        needs_prediction = False

        def view(self, *_):
            raise NotImplementedError

    space = Space()
    assert VendiGuidance(space=space).settings.build_space() is space
    assert "Space" in VendiGuidance(space=space).config["space"]
