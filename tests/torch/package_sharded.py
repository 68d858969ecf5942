"""Optimizers of swamp_torch whose parameters are split over ranks: DDP, FSDP1, FSDP2,
tensor parallelism; against one process. All ranks have the same data, so that the mean
of their gradients is that of one, to the bit."""

import contextlib
import sys
import tempfile

from support import CI, TestCase, caught, main, run_ranks

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint import state_dict as checkpoint_state
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import swamp_torch

STEPS = 4


def model(dtype):
    """300 x 512 has 8-bit moments; of 7, 5 and 1 rows, ranks have unequal parts."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(300, 512), torch.nn.Tanh(), torch.nn.Linear(512, 7),
        torch.nn.Linear(7, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 1)).to(dtype)


def batch(step, dtype):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 300, generator=generator).to(dtype)


def mesh(*shape):
    return dist.init_device_mesh("cpu", shape,
                                 mesh_dim_names=("outer", "inner")[-len(shape):])


def ddp(net, world):
    return DistributedDataParallel(net)


def fsdp1(net, world):
    return FullyShardedDataParallel(net, device_id=torch.device("cpu"))


def fsdp1_orig(net, world):
    return FullyShardedDataParallel(net, device_id=torch.device("cpu"),
                                    use_orig_params=True)


def fsdp2(net, world, of=None):
    from torch.distributed.fsdp import fully_shard
    of = of or mesh(world)
    fully_shard(net[0], mesh=of)
    return fully_shard(net, mesh=of)


def offloaded(net, world):
    """As for a model on a GPU whose parameters are on the CPU."""
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
    policy = CPUOffloadPolicy(pin_memory=False)
    fully_shard(net[0], mesh=mesh(world), offload_policy=policy)
    return fully_shard(net, mesh=mesh(world), offload_policy=policy)


def fsdp1_half(net, world):
    from torch.distributed.fsdp import MixedPrecision
    return FullyShardedDataParallel(net, device_id=torch.device("cpu"),
                                    mixed_precision=MixedPrecision(
                                        param_dtype=torch.float16,
                                        reduce_dtype=torch.float32))


def fsdp2_half(net, world):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    return fully_shard(net, mesh=mesh(world), mp_policy=MixedPrecisionPolicy(
        param_dtype=torch.float16, reduce_dtype=torch.float32))


def hybrid(net, world):
    return fsdp2(net, world, mesh(2, world // 2))


def tensor_parallel(net, world, of=None):
    from torch.distributed.tensor import parallel
    return parallel.parallelize_module(net, of or mesh(world), {
        "0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})


def both(net, world):
    of = mesh(2, world // 2)
    return fsdp2(tensor_parallel(net, world, of["inner"]), world, of["outer"])


HALF = dict(dtype=torch.bfloat16)
# Name, wrapper, class, its options, of which dtype is the model's.
ROWS = [(f"{how.__name__}: {name}", how, cls, options)
        for how in (ddp, fsdp1, fsdp1_orig, fsdp2, offloaded, hybrid, tensor_parallel,
                    both)
        for name, cls, options in (
            ("AdamW", "AdamW", dict(max_norm=1e-2)),
            ("SGD", "SGD", dict(momentum=0.9, max_norm=1e-2)),
            ("master", "AdamW", HALF))
        if how not in (fsdp1, fsdp1_orig) or name != "SGD"] + [
    ("fsdp2: kahan", fsdp2, "AdamW",
     dict(HALF, master_weights=False, rounding="kahan")),
    ("fsdp2: stochastic", fsdp2, "AdamW",
     dict(HALF, master_weights=False, moments="bfloat16")),
    ("fsdp2: 8 bits", fsdp2, "AdamW", dict(moments="8bit")),
    ("fsdp2: amsgrad", fsdp2, "Adam", dict(amsgrad=True, weight_decay=0.1))]
if not CI:
    ROWS = ROWS[::3]  # each wrapper once


def whole(tensor):
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def weights(net):
    if isinstance(net, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(net):
            return [p.detach().clone().view(-1) for p in net.module.parameters()]
    return [whole(p).clone().view(-1) for p in net.parameters()]


def train(net, optimizer, dtype, steps, scaler=None, bad=None):
    for step in steps:
        optimizer.zero_grad()
        loss = net(batch(step, dtype)).square().mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if bad is not None:
            bad(net, step)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def optimizer_of(net, cls, options):
    options = dict(options)
    options.pop("dtype", None)
    if isinstance(net, FullyShardedDataParallel) and "max_norm" in options:
        options["process_group"] = net.process_group
    return getattr(swamp_torch, cls)(net.parameters(), lr=1e-2, **options)


def run_row(how, cls, options, world):
    """Weights and norm after the steps, and what PyTorch stepped."""
    dtype = options.get("dtype", torch.float32)
    net = model(dtype)
    net = net if how is None else how(net, world)
    optimizer = optimizer_of(net, cls, options)
    train(net, optimizer, dtype, range(STEPS))
    others = sum(len(group["params"]) for group in optimizer._collected.others)
    return weights(net), optimizer.grad_norm, others


def skipped_steps(how, rank, world):
    """An inf in the part of the last rank."""
    net = how(model(torch.float32), world)
    optimizer = optimizer_of(net, "AdamW", dict(max_norm=1e-2))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
    seen = []

    def bad(net, step):
        seen.append(optimizer.skipped)
        if step == 1 and rank == world - 1:
            net[0].weight.grad.to_local()[-1, -1] = float("inf")
    train(net, optimizer, torch.float32, range(STEPS), scaler, bad)
    return seen[1:], scaler.get_scale(), weights(net)


def refused(how, world):
    """The error of max_norm without a process_group, and whether a weight changed."""
    net = how(model(torch.float32), world)
    before = weights(net)
    net(batch(0, torch.float32)).sum().backward()
    error = caught(swamp_torch.AdamW(net.parameters(), max_norm=1e-2).step)
    return error, not all(map(torch.equal, before, weights(net)))


SKIPPING = (fsdp2, offloaded)


def scaled_steps(how, world, rank, ours):
    """Float16 by FSDP's mixed precision, or DDP, with swamp's operators and optimizer or
    with PyTorch's; the gradients of the first steps overflow with FSDP, and those of the
    last but one on one rank only: ShardedGradScaler reduces found_inf in unscale_()."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    seen = []

    def bad(net, step):
        if step == 2 * STEPS - 2:
            if rank == 0:
                grad = next(net.parameters()).grad
                getattr(grad, "to_local", lambda: grad)().view(-1)[0] = float("inf")
            scaler.unscale_(optimizer)
        seen.append(scaler.get_scale())
    with contextlib.nullcontext() if ours else swamp_torch.disabled():
        net = how(model(torch.float32), world)
        cls = swamp_torch.SGD if ours else torch.optim.SGD
        optimizer = cls(net.parameters(), lr=1e-2, momentum=0.9)
        scaler = (torch.amp.GradScaler if how is fsdp2_half else ShardedGradScaler)(
            "cpu", init_scale=2.0 ** 18)
        train(net, optimizer, torch.float32, range(2 * STEPS), scaler, bad)
        return seen, scaler.get_scale(), weights(net)


def states_of(net, optimizer):
    return dict(zip(("model", "optimizer"),
                    checkpoint_state.get_state_dict(net, optimizer)))


def saved(world, folder, options):
    """Trains half of the steps and saves."""
    dtype = options.get("dtype", torch.float32)
    net = fsdp2(model(dtype), world)
    optimizer = optimizer_of(net, "AdamW", options)
    train(net, optimizer, dtype, range(STEPS // 2))
    checkpoint.save(states_of(net, optimizer), checkpoint_id=folder)


def resumed(world, folder, options):
    """Loads what other ranks have saved, and trains the rest."""
    dtype = options.get("dtype", torch.float32)
    net = fsdp2(model(dtype), world)
    optimizer = optimizer_of(net, "AdamW", options)
    states = states_of(net, optimizer)
    checkpoint.load(states, checkpoint_id=folder)
    checkpoint_state.set_state_dict(net, optimizer, model_state_dict=states["model"],
                                    optim_state_dict=states["optimizer"])
    train(net, optimizer, dtype, range(STEPS // 2, STEPS))
    return weights(net)


SCALED = (fsdp1_half, fsdp2_half, ddp)
RESHARDED = [row for row in ROWS if row[0] in (
    "fsdp2: AdamW", "fsdp2: master", "fsdp2: kahan", "fsdp2: stochastic",
    "fsdp2: 8 bits")]


def work(rank, world, folder):
    result = {name: run_row(how, cls, options, world)
              for name, how, cls, options in ROWS
              if world == 4 or how not in (hybrid, both)}
    result["skipped"] = [skipped_steps(how, rank, world) for how in SKIPPING]
    if world == 2:
        result["refused"] = [refused(how, world) for how in (fsdp1, fsdp1_orig)]
        result["scaled"] = [[scaled_steps(how, world, rank, ours)
                             for ours in (True, False)] for how in SCALED]
    for name, _, _, options in RESHARDED:
        if world == 2:
            saved(world, f"{folder}/{name}", options)
        else:
            result["resharded " + name] = resumed(world, f"{folder}/{name}", options)
    return result


def alone(rank, world):
    result = {name: run_row(how if how is offloaded else None, cls, options, world)
              for name, how, cls, options in ROWS}
    result["skipped"] = [skipped_steps(how, rank, world) for how in SKIPPING]
    return result


class Sharded(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = run_ranks(alone, 1)[0]
        with tempfile.TemporaryDirectory() as folder:
            cls.two, cls.four = (run_ranks(work, world, folder) for world in (2, 4))

    def test_as_one_process(self):
        for ranks in (self.two, self.four):
            for rank, seen in enumerate(ranks):
                for name, how, _, _ in ROWS:
                    if name not in seen:
                        continue
                    with self.subTest(row=name, ranks=len(ranks), rank=rank):
                        (a, norm_a, _), (b, norm_b, others) = self.one[name], seen[name]
                        self.assertEqual(others, 0)
                        # The sums of a product are split over the ranks.
                        rounded = how in (tensor_parallel, both)
                        tolerance = dict(rtol=0, atol=8e-2) if rounded else dict(
                            rtol=0, atol=0)
                        torch.testing.assert_close(b, a, **tolerance)
                        if norm_a is not None:
                            torch.testing.assert_close(
                                norm_b, norm_a, rtol=1e-3 if rounded else 1e-12, atol=0)

    def test_scaled(self):
        """GradScaler and ShardedGradScaler: PyTorch's scales and bits."""
        for rank, seen in enumerate(self.two):
            for how, (ours, theirs) in zip(SCALED, seen["scaled"], strict=True):
                with self.subTest(how=how.__name__, rank=rank):
                    self.assertEqual(ours[:2], theirs[:2])
                    self.assertEqual(ours[0][0] > ours[0][-2], how is not ddp)
                    self.assertEqual(ours[1], ours[0][-2] / 2)
                    self.assert_same(ours[2], theirs[2])

    def test_max_norm_is_refused(self):
        """Each rank would clip by the norm of its part, without a word."""
        for seen in self.two:
            for (error, text), changed in seen["refused"]:
                self.assertEqual((error, changed), ("ValueError", False))
                self.assertRegex(text, r"^param_groups\[0\]\['params'\]\[0\]: "
                                 "got a parameter of FullyShardedDataParallel")

    def test_found_inf_of_one_rank(self):
        for seen in (self.one, *self.two, *self.four):
            for (skipped, scale, values), one in zip(seen["skipped"], self.one["skipped"]):
                self.assertEqual(skipped, [False, True, False])
                self.assertEqual(scale, 2.0)
                self.assertTrue(all(v.isfinite().all() for v in values))
                self.assert_same(values, one[2])

    def test_reshard(self):
        """A checkpoint of 2 ranks on 4."""
        for rank, seen in enumerate(self.four):
            for name, *_ in RESHARDED:
                with self.subTest(row=name, rank=rank):
                    torch.testing.assert_close(seen["resharded " + name],
                                               self.one[name][0], rtol=0, atol=0)


if __name__ == "__main__":
    if not (dist.is_available() and dist.is_gloo_available()):
        print("skipped: this torch has no gloo")
        sys.exit(77)
    main()
