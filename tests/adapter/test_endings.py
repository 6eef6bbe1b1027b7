"""However a guided call ends, nothing of it remains on the pipeline or in memory."""

import gc
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle
from threading import Thread
from unittest import mock
from weakref import ref

import pytest
import torch
from diffusers import FluxPipeline
from peft import LoraConfig

from tests.adapter.test_denoiser import module_of, pipeline
from tests.adapter.test_mixins import make
from tests.adapter.test_modular import guided, stable_diffusion_xl
from tests.guidance.test_engine import seeded
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import VendiGuidance

CONTROLLED = "SDXL ControlNet"
ENDED = (KeyboardInterrupt, MemoryError, RuntimeError, SystemExit, ValueError)


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """What there is by now is no garbage, and takes no time to be looked through."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def parts_of(pipe):
    modules = [it for it in pipe.components.values() if isinstance(it, torch.nn.Module)]
    return [pipe, pipe.scheduler, *(part for it in modules for part in it.modules())]


def attributes(pipe):
    """Those of a pipeline's parts, but for what a stock call changes too: numbers and tensors of
    the scheduler and of the pipeline."""

    def of(part):
        if isinstance(part, torch.nn.Module):
            return {name: [*it] if isinstance(it, dict) else it for name, it in vars(part).items()}
        return {name: it if callable(it) else None for name, it in vars(part).items()}

    return [of(part) for part in parts_of(pipe)]


def tensor_bytes():
    """Of all tensors that Python knows of."""
    gc.collect()
    tensors = [it for it in gc.get_objects() if type(it) is torch.Tensor]
    return sum({it.data_ptr(): it.untyped_storage().nbytes() for it in tensors}.values())


def calling(name, pipe, **given):
    made = CASES[name].arguments([0, 1], guided=True) | {"num_inference_steps": 6}
    return pipe(**made | given)[0]


def call(pipe, **given):
    return calling("Flux" if isinstance(pipe, FluxPipeline) else CONTROLLED, pipe, **given)


def at(part, number, error, name="forward"):
    """A patch of a method, which at its call `number` raises a kind of error, or does something."""
    inner, count = getattr(part, name), iter(range(1000))

    def method(*args, **kwargs):
        if next(count) == number:
            if isinstance(error, type):
                raise error
            error()
        return inner(*args, **kwargs)

    return mock.patch.object(part, name, method)


def failing(part, number, error, name="forward"):
    """A call in which a method of a part of the pipeline raises an error."""

    def end(pipe, guidance):
        given = guidance.on(pipe)  # before the part is changed
        with at(getattr(pipe, part) if part else pipe, number, error, name):
            call(pipe, **given, output_type="pil")

    return end


def with_callback(change):
    def end(pipe, guidance):
        def callback(pipe, index, *_):
            return change(pipe) if index == 2 else {}

        call(pipe, **guidance.on(pipe, callback=callback))

    return end


def raise_error(*_):
    raise RuntimeError


def from_another_thread(pipe, guidance):
    def interrupt():
        thread = Thread(target=setattr, args=(pipe, "_interrupt", True))
        thread.start()
        thread.join()

    with at(pipe.controlnet, 3, interrupt):
        call(pipe, **guidance.on(pipe))


def in_a_plain_callback(pipe, guidance):
    with at(pipe.controlnet, 3, MemoryError):
        inputs = ["latents", "prompt_embeds"]
        plain = VendiGuidance(prompt_input="prompt_embeds", proposal="gradient")
        call(pipe, callback_on_step_end=plain, callback_on_step_end_tensor_inputs=inputs)


def in_a_block(pipe, guidance):
    with guidance.attached(pipe) as given:
        call(pipe, **given)
        raise RuntimeError


THREE = [seeded(n) for n in range(3)]
ENDINGS = {
    "success": lambda pipe, guidance: call(pipe, **guidance.on(pipe)),
    "not called": lambda pipe, guidance: guidance.on(pipe),
    "encoding": failing(None, 0, RuntimeError, "encode_prompt"),
    "interrupt while encoding": failing(None, 0, KeyboardInterrupt, "encode_prompt"),
    "generators": lambda pipe, guidance: call(pipe, **guidance.on(pipe), generator=THREE),
    "preparation": failing(None, 0, MemoryError, "prepare_latents"),
    "ControlNet, first step": failing("controlnet", 0, MemoryError),
    "ControlNet, later": failing("controlnet", 4, MemoryError),
    "network, first step": failing("unet", 0, MemoryError),
    "network, later": failing("unet", 5, MemoryError),
    "exit": failing("unet", 3, SystemExit),
    "scheduler": failing("scheduler", 2, KeyboardInterrupt, "step"),
    "input scaling": failing("scheduler", 2, RuntimeError, "scale_model_input"),
    "VAE": failing("vae", 0, MemoryError, "decode"),
    "error in a callback": with_callback(raise_error),
    "interrupt by a callback": with_callback(lambda pipe: vars(pipe).update(_interrupt=True)),
    "interrupt from another thread": from_another_thread,
    "no prompts": lambda pipe, guidance: call(pipe, callback_on_step_end=guidance),
    "a plain callback": in_a_plain_callback,
    "after the call": in_a_block,
}
FINISHED = "success", "VAE", "no prompts"
OF_FLUX = "scheduler", "interrupt by a callback", "no prompts"


@pytest.mark.usefixtures("far_target")
@pytest.mark.parametrize(
    ("name", "ending", "proposal"),
    [(CONTROLLED, *it) for it in zip(ENDINGS, cycle(["steps", "gradient", None]), strict=False)]
    + [("Flux", it, None) for it in OF_FLUX],
)
def test_nothing_remains_of_a_call_and_the_next_is_as_fresh(name, ending, proposal):
    pipe = pipeline(name)
    other, stock, before = type(pipe)(**pipe.components), call(pipe), attributes(pipe)

    def end(guidance, pipe=pipe):
        with suppress(*ENDED):
            ENDINGS[ending](pipe, guidance)
        return pipe

    def while_its_arguments_are_kept(guidance):
        on, kept = guidance.on, []
        keep = mock.Mock(side_effect=lambda *of, **how: kept.append(on(*of, **how)) or kept[-1])
        with mock.patch.object(guidance, "on", keep):
            end(guidance)
        assert torch.equal(call(other), stock) and torch.equal(call(pipe), stock)
        assert attributes(pipe)[1:] == before[1:]
        assert len(guidance.window) == (2 if ending in FINISHED and name == CONTROLLED else 0)
        if not len(guidance.window):
            fresh = call(pipe, **VendiGuidance(proposal=proposal).on(pipe))
            assert torch.equal(call(pipe, **guidance.on(pipe)), fresh)

    kept = VendiGuidance(proposal=proposal)
    dropped = ref(end(kept, type(pipe)(**pipe.components)))
    gc.collect()
    assert dropped() is None
    while_its_arguments_are_kept(VendiGuidance(proposal=proposal))
    end(VendiGuidance(proposal=proposal))
    held = tensor_bytes()
    end(VendiGuidance(proposal=proposal))
    assert tensor_bytes() <= held and attributes(pipe) == before


@pytest.mark.parametrize("number", [0, 3])
def test_guided_classes_and_modular_pipelines_end_as_others_do(number):
    def ended(pipe, network, work):
        work()
        before = attributes(pipe)
        with suppress(MemoryError), at(network, number, MemoryError):
            work()
        gc.collect()
        assert attributes(pipe) == before

    for name in ("SDXL", "PixArt-Sigma"):
        pipe = make(name)
        ended(pipe, module_of(pipe), partial(calling, name, pipe))
    modular = stable_diffusion_xl()
    pipe = guided(modular, VendiGuidance())
    ended(pipe, pipe.unet, partial(modular.generate, pipe))


def test_a_lora_that_was_off_is_on_after_a_call_that_failed():
    pipe = CASES["SDXL"].make()
    pipe.unet.add_adapter(LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False))
    before = attributes(pipe)[2:]
    for number in (1, 3, 5):
        guidance = VendiGuidance(undistilled="adapters", proposal="gradient")
        with ExitStack() as stack:
            stack.enter_context(suppress(MemoryError))
            given = guidance.on(pipe)
            stack.enter_context(at(pipe.unet.mid_block, number, MemoryError))
            calling("SDXL", pipe, **given, guidance_scale=1.0, num_inference_steps=4)
        assert attributes(pipe)[2:] == before
