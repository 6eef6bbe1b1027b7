"""The undistilled network of a run: the model's own without LoRAs, or that of another model."""

import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import accelerate
import diffusers
import torch
from diffusers import ModelMixin
from safetensors import safe_open

from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.undistilled import ADAPTERS, Undistilled
from vendi_guidance.features.weights import all_weights, model_folder, reason
from vendi_guidance.runs.manifest import Input
from vendi_guidance.runs.models import fingerprint, parts_of

CONFIG = "config.json"


class Base(NamedTuple):
    """What `--undistilled` names: a network in a folder, or without one the model's own.

    Attributes:
        name: as given; None where nothing was.
    """

    name: str | None = None
    folder: Path | None = None
    variant: str | None = None

    @property
    def input(self) -> dict[str, Input]:
        """What `run.json` says of it."""
        if self.name is None:
            return {}
        sha256 = "" if self.folder is None else fingerprint(self.folder)
        return {"undistilled": Input(self.name, sha256)}

    @property
    def about(self) -> dict[str, str]:
        """What `metadata.jsonl` says of it."""
        return {} if self.name is None else {"undistilled": self.name}

    def remark(self, dtype: str) -> str | None:
        """How large it will be in memory, if it is loaded beside the model."""
        if self.folder is None:
            return None
        size = self._count() * getattr(torch, dtype).itemsize / 1e9
        return f"the rounds' network, {self.name}: {size:.2g} GB beside the model"

    def load(self, dtype: str, device: str, offload: str | None) -> Undistilled:
        """What `VendiGuidance(undistilled=...)` is given.

        Args:
            offload: where not None, the network waits on the CPU, and its layers move to the device
                one after another when it is called.

        Raises:
            ValueError: it cannot be loaded.
        """
        if self.folder is None:
            return self.name
        try:
            with all_weights(ModelMixin):
                network = _class_in(self.folder).from_pretrained(
                    self.folder,
                    dtype=getattr(torch, dtype),
                    use_safetensors=True,
                    local_files_only=True,
                    variant=self.variant,
                )
        except Exception as error:  # broken files raise errors of every kind
            raise ValueError(
                f"--undistilled {self.name} cannot be loaded: {reason(error)}"
            ) from error
        where = torch.device(device)
        return network.to(where) if offload is None else accelerate.cpu_offload(network, where)

    def _count(self) -> int:
        """Of its weights."""
        count = 0
        for path in sorted((self.folder or Path()).glob(_weights(self.variant))):
            with safe_open(path, "pt") as file:
                count += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        return count


def find_undistilled(name: str | None, model: Path, variant: str | None = None) -> Base:
    """What `--undistilled` names, downloaded if need be.

    Args:
        name: "adapters", a folder with a model or a network, or a model on the hub, of which the
            network alone is downloaded.
        model: the folder of the model that makes the images.
        variant: of the files, such as "fp16", where there are some of it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is a network of another class, or one that predicts something else, or the
            model has not one network.
    """
    if name is None or name == ADAPTERS:
        return Base(name)
    parts = {part: kind for part, (_, kind) in parts_of(model).items() if part in NETWORKS and kind}
    if len(parts) != 1:
        raise ValueError(
            f"--undistilled {name} is one network, and the model has {len(parts)}: leave it out"
        )
    [(part, kind)] = parts.items()
    folder = Path(name)
    folder = folder / part if (folder / part).is_dir() else folder
    if folder.is_dir() and not any(folder.glob(_weights(variant))):
        variant = None
    if not (folder / CONFIG).is_file():
        folder = model_folder(name, f"{part}/{_weights(variant)}") / part
    found = _class_in(folder).__name__
    if found != kind:
        raise ValueError(
            f"--undistilled {name} is a {found}, and the model has a {kind}: give the model that "
            "this one was distilled from"
        )
    theirs, ours = _prediction_type(folder.parent), _prediction_type(model)
    if theirs and ours and theirs != ours:
        raise ValueError(
            f"--undistilled {name} predicts {theirs}, and the model {ours}: give the model that "
            "this one was distilled from"
        )
    return Base(name, folder, variant)


def _weights(variant: str | None) -> str:
    """The pattern of a network's files of weights, without those of other variants."""
    end = "[.-][s0]" if variant is None else f".{variant}"
    return f"diffusion_pytorch_model{end}*tensors"


def _prediction_type(folder: Path) -> str | None:
    """What the network of a model predicts, if its scheduler says it."""
    file = folder / "scheduler" / "scheduler_config.json"
    return json.loads(file.read_text("utf-8")).get("prediction_type") if file.is_file() else None


def _class_in(folder: Path) -> type[Any]:
    """Of the network in a folder, one of diffusers' own."""
    try:
        name = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("_class_name")
        kind = getattr(diffusers, str(name), None)
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"there is no network in {folder}: {reason(error)}") from None
    if not (isinstance(kind, type) and issubclass(kind, ModelMixin)):
        raise ValueError(
            f"the network in {folder} asks for a {name}, which diffusers does not have"
        )
    return kind
