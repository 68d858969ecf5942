"""Linear layers whose weights are divided over ranks, with the bits of one process.

A product's sums are chains of fused multiply-adds (:func:`swamp_torch.enable`). If its
terms are divided over ranks, the first rank begins the chain, each next one continues
it, and the last one rounds the result and sends it to all. Rows go from rank to rank in
groups, so that all ranks compute at the same time. So a layer, its gradients and a
training have the same bits on 1, 2, 4 or more ranks::

    from swamp_torch.tensor_parallel import ColwiseParallel, RowwiseParallel

    swamp_torch.enable(half_precision=True, reproducible=True)
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

What else the model computes must have the same bits, as with ``reproducible``; the
gradient's norm that clips is summed over ranks in another order.
"""

from typing import Any, List, Optional

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from ._load import load

load()
_ops = torch.ops.swamp

# The rows that go to the next rank at a time: its work begins after that many.
_ROWS = 128


def chained_product(x: torch.Tensor, y: torch.Tensor, group: dist.ProcessGroup,
                    bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    """``x @ y + bias`` for all terms of a group's ranks, rounded once.

    All ranks call it with the same shapes, except for the number of terms, which is even
    but for the last rank.

    Args:
        x: this rank's columns, [rows, terms]; float16, bfloat16 or float32 on the CPU.
        y: this rank's rows, [terms, columns]; the dtype of ``x``.
        group: the ranks, in the order of their terms.
        bias: [columns]; only the last rank's is used.

    Returns:
        The same tensor on each rank, [rows, columns].

    Raises:
        RuntimeError: an argument of another shape, dtype or device.
    """
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    out = x.new_empty(x.shape[0], y.shape[1])
    panels = (y.shape[1] + 31) // 32 * 32  # product_sums_count() of a row
    sent: List[Any] = []
    for begin in range(0, x.shape[0], _ROWS):
        part = x[begin:begin + _ROWS]
        sums = torch.empty(part.shape[0] * panels, dtype=torch.float32)
        if rank != 0:
            dist.recv(sums, group=group, group_src=rank - 1)
        result = _ops._product_part(part, y, sums, rank == 0, rank == last, bias)
        if rank == last:
            out[begin:begin + _ROWS] = result
        else:
            sent.append((dist.isend(sums, group=group, group_dst=rank + 1), sums))
    for work, _ in sent:
        work.wait()
    if last != 0:
        dist.broadcast(out, group=group, group_src=last)
    return out


class _Linear(torch.autograd.Function):
    """A linear layer that is divided over ranks. They continue each other's sums in
    the result of a row-parallel layer, and in the gradient of a column-parallel layer's
    input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor,
                bias: Optional[torch.Tensor], group: dist.ProcessGroup,
                rowwise: bool) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.group, ctx.rowwise, ctx.has_bias = group, rowwise, bias is not None
        if not rowwise:
            return torch.nn.functional.linear(x, weight, bias)
        y = chained_product(x.flatten(0, -2), weight.t(), group, bias)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        dx = None
        if ctx.needs_input_grad[0]:
            dx = (rows @ weight if ctx.rowwise else
                  chained_product(rows, weight, ctx.group)).view(x.shape)
        return (dx, rows.t() @ x.flatten(0, -2), rows.sum(0) if ctx.has_bias else None,
                None, None)


class _Style(ParallelStyle):
    """A torch.nn.Linear whose weight becomes a DTensor, and whose input and output are
    ordinary tensors."""

    rowwise: bool
    weight: Any
    bias: Any

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh
               ) -> torch.nn.Module:
        if not isinstance(module, torch.nn.Linear):
            raise TypeError(f"module: got {type(module).__name__}, expected "
                            "torch.nn.Linear")
        group = device_mesh.get_group()
        placements = {"weight": self.weight, "bias": self.bias}
        for name, placement in placements.items():
            values = getattr(module, name)
            if values is not None:
                setattr(module, name, torch.nn.Parameter(
                    distribute_tensor(values.detach(), device_mesh, [placement]),
                    requires_grad=values.requires_grad))

        def forward(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
                x, module.weight.to_local(),
                None if module.bias is None else module.bias.to_local(), group,
                self.rowwise)
            return result

        module.forward = forward  # type: ignore[method-assign]
        return module


class ColwiseParallel(_Style):
    """Divides the outputs of a ``torch.nn.Linear`` over the ranks of a mesh with one
    dimension. Its input is the same on all ranks; its output is this rank's part."""

    rowwise, weight, bias = False, Shard(0), Shard(0)


class RowwiseParallel(_Style):
    """Divides the inputs of a ``torch.nn.Linear`` over the ranks of a mesh with one
    dimension, an even number each. Its input is this rank's part; its output is the same
    on all ranks."""

    rowwise, weight, bias = True, Shard(1), Replicate()
