"""Layers of swamp_torch.float8 on two ranks: DistributedDataParallel, FSDP2, and ranks
without tokens."""

import tempfile

from package_float8 import WIDTH, make_model, train
from support import TestCase, main, run_ranks

import torch

from swamp_torch import float8

def delayed_on_rank(rank, ranks, folder):
    """Parameters, scales and amax after some steps with DistributedDataParallel,
    and those of a run that resumes in the middle."""
    outcomes = []
    for resumed in (False, True):
        model = make_model("te_delayed_hybrid", {"amax_history_len": 3})
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        train(parallel, 3, 0, rank)
        if resumed:
            torch.save(model.state_dict(), f"{folder}/{rank}.state")
            model = make_model("te_delayed_hybrid", {"amax_history_len": 3},
                               seed=5)
            model.load_state_dict(torch.load(f"{folder}/{rank}.state"))
            parallel = torch.nn.parallel.DistributedDataParallel(model)
        losses, gradients = train(parallel, 3, 3, rank)
        float8.update_scales(model)
        outcomes.append((losses, gradients, dict(model.state_dict())))
    return outcomes


def sharded_on_rank(rank, ranks, name, options):
    """Losses and whole parameters with FSDP2, with equal data on all ranks, and
    without it."""
    from torch.distributed.fsdp import fully_shard
    outcomes = []
    for sharded in (False, True):
        model = make_model(name, options)
        if sharded:
            for layer in (model[0], model[2]):
                fully_shard(layer, mesh=torch.distributed.init_device_mesh(
                    "cpu", (ranks,)))
            fully_shard(model, mesh=torch.distributed.init_device_mesh(
                "cpu", (ranks,)))
        losses, _ = train(model, 3)
        outcomes.append((losses, [
            p.full_tensor() if hasattr(p, "full_tensor") else p.detach()
            for p in model.parameters()]))
    return outcomes


def idle_on_rank(rank, ranks, name, options):
    """Gradients of three steps; in the second one only rank 0 has tokens."""
    model = torch.nn.parallel.DistributedDataParallel(make_model(name, options))
    found = []
    for tokens in (16, 16 if rank == 0 else 0, 16):
        torch.manual_seed(rank)
        model.zero_grad()
        model(torch.randn(tokens, WIDTH).bfloat16()).sum().backward()
        found += [p.grad.clone() for p in model.parameters()]
    return found


IDLE = ("rowwise", "hif8", "nvfp4", "te_delayed_hybrid")
SHARDED = ("te_delayed_hybrid", "mxfp8")


def work(rank, ranks, folder):
    """All that two ranks do, because starting them takes longer."""
    return ([idle_on_rank(rank, ranks, name, {}) for name in IDLE],
            delayed_on_rank(rank, ranks, folder),
            [sharded_on_rank(rank, ranks, name, {}) for name in SHARDED])


class Ranks(TestCase):
    def test_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            idle, delayed, sharded = zip(*run_ranks(work, 2, folder))
        for name, first, second in zip(IDLE, *idle, strict=True):
            self.assert_same(first, second, name)
            self.assertTrue(all(g.isfinite().all() for g in first))
        for one in delayed:
            for whole, resumed in zip(one[0], one[1]):
                if isinstance(whole, dict):
                    whole, resumed = (list(x.values()) for x in (whole, resumed))
                self.assert_same(whole, resumed)
        first, second = (one[0][2] for one in delayed)
        for key in first:  # the scales and amax of both ranks are equal
            self.assert_same(first[key], second[key], key)
        for rank in sharded:
            for name, (whole, parts) in zip(SHARDED, rank, strict=True):
                self.assert_same(whole[0], parts[0], name)
                self.assert_same(whole[1], parts[1], name)


if __name__ == "__main__":
    main()
