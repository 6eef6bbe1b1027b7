"""Which networks are joint, whatever wraps their blocks."""

import pytest
import torch
from diffusers.hooks import HookRegistry, ModelHook, apply_group_offloading
from torch import nn

from tests.adapter.test_denoiser import module_of
from tests.adapter.test_mixins import make
from tests.helpers.tiny_pipelines import CASES, JOINT
from vendi_guidance.adapter.joint import is_joint


def hooked(network):
    for block in network.modules():
        if "Block" in type(block).__name__:
            HookRegistry.check_if_exists_or_initialize(block).register_hook(ModelHook(), "own")
            block.register_forward_hook(lambda *_: None)


def offloaded(network):
    how = {"offload_type": "block_level", "num_blocks_per_group": 1}
    apply_group_offloading(network, torch.device("cpu"), **how)


def cast(network):
    network.enable_layerwise_casting(torch.float8_e4m3fn, torch.float32)


def compiled(network):
    for block in network.modules():
        block.compile(backend="eager")


WRAPPINGS = {"none": lambda network: None, "hooks": hooked, "offloaded": offloaded, "cast": cast}
WRAPPINGS["compiled"] = compiled


@pytest.mark.parametrize("name", CASES)
def test_networks_are_joint_whose_blocks_return_tokens_of_the_prompt(name):
    assert is_joint(module_of(make(name, guided=False))) == (name in JOINT)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", ["Flux", "SD3", "PixArt-Sigma", "SDXL"])
def test_a_wrapped_network_is_joint_as_it_was(name, wrapping):
    network = module_of(make(name, guided=False))
    WRAPPINGS[wrapping](network)
    for whole in (network, torch.compile(network), nn.Sequential(nn.Sequential(network))):
        assert is_joint(whole) == (name in JOINT)
