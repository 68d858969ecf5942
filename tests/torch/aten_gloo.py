"""Two processes over gloo, with swamp in both, and with stock."""

import sys
import unittest
import warnings

from support import difference, load, main, run_ranks, unscale

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STEPS = 6


def model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(),
                               torch.nn.Linear(32, 4))


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 16, generator=generator)


def train(net, scaler, optimizer, rank, bad):
    """bad(rank, step) returns whether this rank's gradients get an inf."""
    seen = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = net(batch(rank, step)).square().mean()
        scaler.scale(loss).backward()
        if bad(rank, step):
            next(net.parameters()).grad.view(-1)[0] = float("inf")
        before = [p.detach().clone() for p in net.parameters()]
        scaler.step(optimizer)
        scaler.update()
        moved = not all(map(torch.equal, before, net.parameters()))
        seen.append([loss.detach(), scaler.get_scale(), moved,
                     [p.detach().clone() for p in net.parameters()]])
    return seen


def sharded_ddp(rank):
    """An inf on one rank: both back off, and both keep their weights."""
    net = DistributedDataParallel(model())
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0,
                               growth_interval=2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    seen = train(net, scaler, optimizer, rank,
                 lambda rank, step: rank == 0 and step % 3 == 1)
    assert [s[2] for s in seen] == [True, False, True, True, False, True]
    return seen


def sharded_fsdp(rank):
    net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"),
                                   use_orig_params=False)
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0,
                               growth_interval=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    seen = train(net, scaler, optimizer, rank,
                 lambda rank, step: rank == 1 and step in (0, 3))
    assert [s[2] for s in seen] == [False, True, True, False, True, True]
    return seen


def found_by_max(rank):
    """A hand-written loop, as Megatron's: found_inf reduced by MAX."""
    seen = []
    for step in range(4):
        grads = [batch(rank, step), batch(rank, step)[:, ::2].bfloat16()]
        if rank == step % 3:
            grads[rank][3, 1] = float("nan")
        found = torch.zeros(1)
        unscale(grads, found, torch.tensor([0.125]))
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        scale, tracker = torch.tensor([8.0]), torch.tensor([1]).int()
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
        assert found.item() == (0.0 if step % 3 == 2 else 1.0)
        seen += [grads, found, scale, tracker]
    return seen


FLOWS = (sharded_ddp, sharded_fsdp, found_by_max)


def work(rank, _, with_swamp):
    warnings.simplefilter("ignore")
    if with_swamp:
        load()
    return {flow.__name__: flow(rank) for flow in FLOWS}


class Gloo(unittest.TestCase):
    def test_flows(self):
        stock, ours = (run_ranks(work, WORLD, swamp) for swamp in (False, True))
        for rank in range(WORLD):
            for flow in FLOWS:
                with self.subTest(flow=flow.__name__, rank=rank):
                    found = difference(stock[rank][flow.__name__],
                                       ours[rank][flow.__name__])
                    self.assertIsNone(found, found)


if __name__ == "__main__":
    if not (dist.is_available() and dist.is_gloo_available()):
        print("skipped: this torch has no gloo")
        sys.exit(77)
    main()
