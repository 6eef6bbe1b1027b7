"""The guided Flux as a tiny model: what its class adds to the plain callback."""

from diffusers import FluxPipeline

from tests.adapter.test_mixins import generate, make


def test_a_users_callback_gets_what_it_asks_for():
    seen = []

    def note(pipe, index, timestep, tensors):
        seen.append(sorted(tensors))
        return {}

    pipe, given = make("Flux"), {"callback_on_step_end": note}
    generate(pipe, "Flux", **given)
    generate(pipe, "Flux", **given, callback_on_step_end_tensor_inputs=["prompt_embeds"])
    assert seen == [["latents"]] * 3 + [["prompt_embeds"]] * 3
    assert len(pipe.guidance.window) == 4


def test_the_stock_class_is_left_as_it_was():
    assert "pooled_prompt_embeds" not in FluxPipeline._callback_tensor_inputs
