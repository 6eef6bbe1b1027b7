"""Each setting is said once, and everything that offers settings offers these."""

import dataclasses
import inspect
import json
from pathlib import Path

import pytest
from diffusers import FluxPipeline, PixArtAlphaPipeline, StableDiffusionXLPipeline

from vendi_guidance import (
    VendiGuidance,
    VendiGuidedFluxPipeline,
    VendiGuidedPixArtAlphaPipeline,
    VendiGuidedSDXLPipeline,
)
from vendi_guidance.guidance.settings import NOT_GIVEN, PRESETS, Settings

PAGE = Path(__file__).parents[2] / "docs" / "dial.md"
NAMES = [setting.name for setting in dataclasses.fields(Settings)]
GUIDED = {
    VendiGuidedSDXLPipeline: StableDiffusionXLPipeline,
    VendiGuidedFluxPipeline: FluxPipeline,
    VendiGuidedPixArtAlphaPipeline: PixArtAlphaPipeline,
}


def test_guidance_takes_every_setting():
    taken = inspect.signature(VendiGuidance).parameters
    assert set(NAMES) <= set(taken)
    assert all(taken[name].default is NOT_GIVEN for name in NAMES)
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
    assert added == {*NAMES, "diversity", "memory", "preset", "window"}


@pytest.mark.parametrize("guided", GUIDED)
def test_help_explains_every_setting(guided):
    for setting in dataclasses.fields(Settings):
        start = setting.metadata["help"].split()[0]
        assert f"diversity_{setting.name} (default" in guided.__call__.__doc__
        assert start in guided.__call__.__doc__
        assert f"{setting.name} (default" in VendiGuidance.__doc__
        assert f"{setting.name} (default" in Settings.__doc__


@pytest.mark.parametrize(
    ("name", "value"), [("sigma_latent", 0.5), ("sigma_prompt", 0.2), ("truncation", 3)]
)
def test_none_can_be_set_where_it_is_a_value(name, value):
    given = Settings(**{name: value})
    assert getattr(given.changed(**{name: NOT_GIVEN}), name) == value
    assert getattr(given.changed(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["scale", "every", "objective", "space", "rounds", "cfg"])
def test_none_is_refused_where_it_is_no_value(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got None"):
        Settings().changed(**{name: None})


def test_a_setting_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(TypeError, match=r"no setting 'scael': the settings are objective, scale"):
        VendiGuidance(scael=3)


def test_the_registered_config_and_repr_say_the_settings_of_now():
    guidance = VendiGuidance(preset="published")
    guidance.settings = guidance.settings.changed(every=7)
    config = json.loads(guidance.to_json_string())
    assert (config["every"], config["scale"]) == (7, 0.03)
    assert set(NAMES) <= set(config)
    assert "every=7" in repr(guidance) and "SlidingWindow(300)" in repr(guidance)


def settings_table() -> str:
    """The table of settings in docs/dial.md."""

    def shown(setting, settings):
        value = getattr(settings, setting.name)
        return (
            setting.metadata["none"]
            if value is None
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )

    lines = ["| setting | default | published | |", "|---|---|---|---|"]
    for setting in dataclasses.fields(Settings):
        values = [shown(setting, settings) for settings in (Settings(), PRESETS["published"])]
        lines.append(f"| `{setting.name}` | {' | '.join(values)} | {setting.metadata['help']} |")
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
    assert "Space" in VendiGuidance(space=space).config["space"]
