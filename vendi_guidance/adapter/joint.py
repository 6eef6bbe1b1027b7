"""Whether a network is joint: its blocks return tokens of the prompt beside those of the image."""

from inspect import signature

from torch import nn

from vendi_guidance.adapter.arguments import uncompiled

JOINT = (
    *("transformer_blocks", "joint_transformer_blocks", "double_stream_blocks"),
    *("double_blocks", "joint_blocks"),
)
"""Lists of blocks that are looked at before longer ones."""

OWN_TEXT = "context_block", "txt_attn"
"""Layers of ComfyUI's joint blocks, whose `forward` does not say that it returns text tokens."""


def is_joint(network: nn.Module) -> bool:
    """Whether a block after the first third of a transformer returns text tokens, as its class
    says: hooks replace the `forward` of a block itself."""
    children = dict(uncompiled(network).named_children())
    while len(children) == 1 and not any(isinstance(it, nn.ModuleList) for it in children.values()):
        [inner] = children.values()  # of a wrapper, such as a `PeftModel`
        children = dict(inner.named_children())
    lists = {it: one for it, one in children.items() if isinstance(one, nn.ModuleList) and len(one)}
    longest = max(lists.values(), key=len, default=nn.ModuleList())
    blocks = next((lists[name] for name in JOINT if name in lists), longest)
    if not len(blocks) or "mid_block" in children:
        return False
    block = blocks[len(blocks) // 3]
    returned = str(signature(type(block).forward).return_annotation)
    return "tuple" in returned.lower() or any(hasattr(block, name) for name in OWN_TEXT)
