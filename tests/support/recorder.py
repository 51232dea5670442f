"""A CUDA graph without a GPU: the operations of a function are noted, and repeated on the same tensors."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
WAITS = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero, aten._unique2}


def tensors_in(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Tape(TorchDispatchMode):
    """Notes operations. Refuses those that wait for a GPU to give a value or a number of elements to the processor."""

    def __init__(self):
        super().__init__()
        self.calls, self.before = [], {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = kwargs or {}, func.overloadpacket
        masks = packet in (aten.index, aten.index_put, aten.index_put_) and any(
            index.dtype is torch.bool for index in tensors_in(args[1])
        )
        if packet in WAITS or masks:
            raise RuntimeError(f"{func} waits for the device")
        for argument, value in zip(func._schema.arguments, args, strict=False):  # of a graph nothing is computed yet
            if argument.alias_info is not None and argument.alias_info.is_write:
                for one in tensors_in(value):
                    self.before.setdefault(one.data_ptr(), (one, one.clone()))
        made = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, made))
        return made

    @torch.no_grad()
    def repeat(self):
        for func, args, kwargs, made in self.calls:
            for old, new in zip(tensors_in(made), tensors_in(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():  # a view, or a tensor changed in place
                    old.copy_(new)


class TapeRecorder:
    """In place of CudaRecorder."""

    def __init__(self):
        self.recorded = 0

    def run(self, function):
        return function()

    def record(self, function):
        self.recorded += 1
        state = torch.get_rng_state()
        with Tape() as tape:
            results = function()
        torch.set_rng_state(state)  # of a graph nothing is drawn yet
        with torch.no_grad():
            for tensor, before in tape.before.values():
                tensor.copy_(before)
        return tape.repeat, results
