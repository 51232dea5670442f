"""A folder's tensor names to ours and back, by the table of its family (families.py).

Folders with and without the encoder's prefix are read, and the old `gamma` and `beta` of LayerNorm. Each tensor of a
folder is used exactly once: what is missing, left over or of another shape is an error that lists it.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor

from ..files import InputError, clip
from ..model.config import HeadName, ModelConfig

T = TypeVar("T")
Settings = Mapping[str, Any]  # a config.json
TOP = "bertworks_top"  # our key in config.json for the top, what is between encoder and head
LABELS = 10  # labels that a message lists; of more it gives the number (`listed`)
_SAME_NAME = {"classifier", "choice", "tagger"}  # heads that are all called `classifier` in folders


def _nothing(_: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Family:
    """What folders of one family call things: first tensors and classes, then the keys of config.json.

    `weight` and `bias` have the same names in both.
    """

    prefix: str  # of the encoder's tensors
    modules: Mapping[str, str]  # our name: that of Hugging Face; {} is the number of a layer
    classes: Mapping[str, set[str]]  # the parts each class of transformers has, beside layers and embeddings
    causal: str | None = None  # the class whose tokens see the left context alone
    unread: str = ""  # beginning of tensors that some folders have, but their class does not read
    pooler_of: Container[str] = ()  # heads whose first matrix is the pooler; without them no pooler is read
    aliases: Mapping[str, str] = field(default_factory=dict)  # model types of the same tensors: how their classes begin
    beside: frozenset[str] = frozenset()  # heads that no class has: written beside those of a class, which ignores them
    older: Mapping[str, str] = field(default_factory=dict)  # patterns of other names that folders have: those of today
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ends of modules: those that are stacked there
    write_fused: bool = False  # whether folders of today have them stacked too

    keys: Mapping[str, str] = field(default_factory=dict)  # a ModelConfig field: its key, where that is another name
    fixed: Settings = field(default_factory=dict)  # ModelConfig fields that its config.json has no key for
    defaults: Settings = field(default_factory=dict)  # of transformers, by field, where they are not BERT's
    read: Callable[[Settings], dict[str, Any]] = _nothing  # more fields from a config.json; ValueError if it cannot be
    write: Callable[[ModelConfig], dict[str, Any]] = _nothing  # more keys of a config.json

    @cached_property
    def inside(self) -> set[str]:
        """How names of the encoder's tensors begin in folders of the bare encoder, which leave the prefix out."""
        named = (name.split(".") for name in self.modules.values())
        return {parts[1] for parts in named if parts[0] == self.prefix}

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Heads, pooler and top: how the names of their tensors begin."""
        parts: dict[str, tuple[str, ...]] = {}
        for name, hf_name in self.modules.items():
            if (part := our_part(name)) != "body":
                parts[part] = (*parts.get(part, ()), f"{hf_name.removesuffix('.{}')}.")
        return parts

    @cached_property
    def unclear(self) -> set[str]:
        """Parts that only the class of a folder tells apart, because their tensors have the same names."""
        names = {(our_part(name), hf_name) for name, hf_name in self.modules.items()}
        counts = Counter(hf_name for _, hf_name in names)
        return _SAME_NAME | {part for part, hf_name in names if counts[hf_name] > 1}

    @cached_property
    def tied(self) -> dict[str, str]:
        """Copies that some versions write, by what they must be equal to."""
        decoder, head = self.modules["heads.mlm.decoder"], self.modules["heads.mlm"]
        tied = {f"{decoder}.weight": f"{self.modules['encoder.embeddings.word']}.weight"}
        return tied if decoder == head else {**tied, f"{decoder}.bias": f"{head}.bias"}

    @property
    def bare(self) -> str:
        """The class without a head."""
        return next(name for name, parts in self.classes.items() if not parts)

    @property
    def right(self) -> str:
        """Prefix of the right encoder of a pair; the left one has the usual prefix."""
        return f"{self.prefix}_right"

    def hf_name(self, ours: str) -> str:
        """Hugging Face's name of our parameter, as `encoder.layers.3.attention.query.weight`. KeyError if none."""
        ours, right = re.subn(r"^encoder\.right\.", "encoder.", ours)
        ours = re.sub(r"^encoder\.left\.", "encoder.", ours)
        module, inner, kind = re.fullmatch(r"(.*?)((?:\.cells\.\d+)?)\.(\w+)", ours).groups()  # type: ignore[union-attr]
        number = re.search(r"\.(\d+)(?=\.|$)", module)
        pattern = module if number is None else module.replace(number[0], ".{}", 1)
        name = self.modules[pattern].format(number and number[1]) + f"{inner}.{kind}"
        return re.sub(f"^{self.prefix}", self.right, name) if right else name

    def separated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a folder, each fused one cut into equal parts along its rows, under the names of the parts."""
        out: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            module, _, kind = name.rpartition(".")
            end = next((end for end in self.fused if module.endswith(f".{end}")), None)
            if end is None or tensor.ndim == 0 or len(tensor) % len(self.fused[end]):
                out[name] = tensor
                continue
            names = (f"{module.removesuffix(end)}{part}.{kind}" for part in self.fused[end])
            out |= zip(names, tensor.chunk(len(self.fused[end])), strict=True)
        return out

    def stacked(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a folder to write: the opposite of `separated`, if the family writes fused tensors."""
        out = dict(tensors)
        for end, parts in self.fused.items() if self.write_fused else ():
            first = re.compile(rf"(.*\.){re.escape(parts[0])}\.(\w+)")
            for before, kind in (match.groups() for match in map(first.fullmatch, tensors) if match):
                out[f"{before}{end}.{kind}"] = torch.cat([out.pop(f"{before}{part}.{kind}") for part in parts])
        return out

    def canonical(self, tensors: Mapping[str, T], where: str) -> dict[str, T]:
        """The tensors of a folder under full names of today. A value may be anything, not only a tensor.

        Constants of old versions and the tensors of `unread_in` are left out. Raises InputError if two claim one name.
        """
        out: dict[str, T] = {}
        buffer = re.compile(rf"({self.prefix}\.)?embeddings\.(position_ids|token_type_ids)")
        for name, tensor in tensors.items():
            full = self._of_today(name)
            if buffer.fullmatch(full) or self.unread_in([name]):
                continue
            full = f"{self.prefix}.{full}" if full.split(".")[0] in self.inside else full
            if full in out:
                raise InputError(
                    f"{where}: two tensors for {clip(full)}, with and without prefix or in old and new spelling"
                )
            out[full] = tensor
        return out

    def _of_today(self, name: str) -> str:
        """A tensor's name of today, for one of an older version or another model type."""
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        for other, todays in self.older.items():
            name = re.sub(other, todays, name)
        return name

    def unread_in(self, names: Iterable[str]) -> list[str]:
        """The names of learned tensors that the folder's class does not read."""
        return sorted(name for name in names if self.unread and self._of_today(name).startswith(self.unread))

    def untied(self, tensors: Mapping[str, T]) -> dict[str, T]:
        """The tensors of a model whose decoder has its own matrix: its bias is the decoder's, not the head's."""
        out = dict(tensors)
        for copy, original in self.tied.items():
            if copy.endswith(".bias") and copy in out:
                out[original] = out.pop(copy)
        return out

    def parts_of(self, names: Iterable[str], settings: Mapping[str, Any]) -> set[str]:
        """Which heads a folder has, and `pooler`: those with tensors, and those that its `architectures` have.

        Three heads are called `classifier` in folders; the class in `architectures` tells which one it is. Without such
        a class it is a classifier if there is a pooler to read, and none of ours if the class is unknown. ModernBERT's
        pooler has the same names as the first half of its other heads, so only the class tells.
        """
        names, classes = list(names), settings.get("architectures") or []
        present = {part for part, prefix in self.parts.items() if any(name.startswith(prefix) for name in names)}
        declared = set[str]().union(*(self.classes.get(name, set()) for name in classes))
        if settings.get(TOP):  # its heads may read something else
            declared.discard("pooler")
        unclear = self.unclear - declared
        usual = "pooler" in present - unclear and self.classes.keys() >= set(classes) and not declared & _SAME_NAME
        present -= unclear - ({"classifier"} if usual else set())
        if "pooler" not in present:
            present.discard("nsp")
        return present | declared

    def part_of(self, name: str, parts: Container[str]) -> str:
        """The one of a folder's `parts` that its tensor belongs to; else "body" (the encoder) or "other"."""
        mine = (part for part, begin in self.parts.items() if part in parts and name.startswith(begin))
        body = name.startswith((f"{self.prefix}.", f"{self.right}.")) and not name.startswith(self.parts["pooler"])
        return next(mine, "body" if body else "other")

    def match(self, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Our state dict from a folder's tensors (canonical names); `expected` holds our names and shapes.

        Raises InputError that lists every tensor that is missing, left over, of another shape, or tied but different.
        """
        unused, state, faults = dict(tensors), {}, []
        for name, target in expected.items():
            hf_name = self.hf_name(name)
            tensor = unused.pop(hf_name, None)
            if tensor is None:
                faults.append(f"{hf_name}: missing")
            elif tensor.shape != target.shape or not tensor.is_floating_point():
                reason = _REASONS.get(name, " by config.json")
                faults.append(f"{hf_name}: found {_form(tensor)}, expected {_form(target)}{reason}")
            else:
                state[name] = tensor
        for copy, original in self.tied.items():
            if copy in unused and original in tensors and not unused.pop(copy).equal(tensors[original]):
                faults.append(
                    f"{copy}: differs from {original}, to which it is tied here; if it is meant to be a matrix of its "
                    'own, config.json must say "tie_word_embeddings": false'
                )
        unread = [f"{name}: left over, no part of the model reads it" for name in unused]
        if faults or unread:
            shown = [clip(fault, 200) for fault in [*faults[: max(4, 8 - len(unread))], *unread][:8]]
            more = len(faults) + len(unread) - len(shown)
            shown += [f"... and {more} more"] if more else []
            raise InputError(f"{where}: tensors and config.json do not fit together\n  " + "\n  ".join(shown))
        return state


_REASONS = {"encoder.embeddings.word.weight": " (vocab_size and the width of embeddings in config.json)"}


def listed(names: Collection[str], most: int = 8) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(clip(name, 120) for name in [*names][:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _form(tensor: Tensor) -> str:
    return f"{'x'.join(map(str, tensor.shape))} {str(tensor.dtype).removeprefix('torch.')}"


def heads_in(parts: Collection[str]) -> tuple[HeadName, ...]:
    """The heads among `parts`, in the order models are built in."""
    return tuple(head for head in get_args(HeadName) if head in parts)


def our_part(name: str) -> str:
    """The part that one of our parameters or modules belongs to: the name of a head, "pooler", "top" or "body"."""
    words = name.split(".")
    if words[0] in ("heads", "top"):
        return words[1] if words[0] == "heads" else "top"
    return "pooler" if words[1] == "pooler" else "body"
