"""GradScaler and ShardedGradScaler on the CPU, from loss to weights, with swamp and
with stock: typical programs. package_torch_suite.py runs PyTorch's own tests."""

import math
import pickle
import unittest
from functools import partial

from support import main, same_as_stock

import torch
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))


def batches(count=4):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(8, 8, generator=generator),
             torch.randn(8, 8, generator=generator)) for _ in range(count)]


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def gradients(net):
    return [None if p.grad is None else p.grad.clone()
            for p in net.parameters()]


def state(optimizer):
    return [{k: v.clone() if torch.is_tensor(v) else v for k, v in s.items()}
            for s in optimizer.state.values()]


def scaler_of(**options):
    options = {"init_scale": 128.0, "growth_factor": 2.0, "growth_interval": 1,
               **options}
    return GradScaler("cpu", **options)


def mse(output, target):
    return torch.nn.functional.mse_loss(output, target)


def SGD(params, lr=1.0):
    return torch.optim.SGD(params, lr=lr)


def found_in(params):
    """found_inf of each device, after the gradients were multiplied by 1/4."""
    found = scaler_of()._unscale_grads_(SGD(params), torch.tensor(0.25),
                                        torch.tensor(0.0), True)
    return [value.item() for value in found.values()]


def spoil(optimizer, value=math.inf):
    optimizer.param_groups[0]["params"][1].grad.fill_(value)


def plain(net, optimizer, scaler):
    scaler.step(optimizer)


def train(step=plain, make_optimizer=SGD, skip=2, scaler=scaler_of, dtype=torch.float32,
          autocast=None, every=1, loss_of=None, after=lambda scaler: scaler):
    """Four batches, the gradients of one of them with an inf; calls step(net, optimizer,
    scaler) after every `every` of them, and then after(scaler), the next scaler."""
    net = model().to(dtype)
    optimizer = make_optimizer(net.parameters())
    scaler = scaler()
    seen = []
    for index, (batch, target) in enumerate(batches()):
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            loss = mse(net(batch.to(dtype)), target.to(dtype)) / every
        if loss_of is not None:
            loss = loss_of(loss, net, scaler)
        scaler.scale(loss).backward()
        if index == skip:
            spoil(optimizer)
        seen += [loss, gradients(net)]
        if index % every != every - 1:
            continue
        before = weights(net)
        step(net, optimizer, scaler)
        scaler.update()
        scaler = after(scaler)
        skipped = all(map(torch.equal, before, weights(net)))
        assert skipped == (index == skip), index
        seen += [scaler.get_scale(), gradients(net), weights(net)]
        optimizer.zero_grad()
    return seen, scaler.state_dict(), state(optimizer)


def clip(net, optimizer, scaler):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1 * scaler.get_scale())
    scaler.step(optimizer)


def unscale_clip(net, optimizer, scaler):
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1,
                                   error_if_nonfinite=False)
    scaler.step(optimizer)


def penalty(loss, net, scaler):
    grads = torch.autograd.grad(scaler.scale(loss), net.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    return loss + sum((g * inverse).pow(2).sum() for g in grads).sqrt()


def loaded(warm):
    scaler = scaler_of(init_scale=3.0, growth_interval=2)
    if warm:
        scaler.scale(torch.ones(1))
    scaler.load_state_dict({"scale": 4.0, "growth_factor": 8.0, "backoff_factor": 0.125,
                            "growth_interval": 3, "_growth_tracker": 2})
    return scaler


def pickled(dtype):
    return {"make_optimizer": partial(torch.optim.AdamW, lr=0.01), "skip": None,
            "autocast": dtype, "after": lambda s: pickle.loads(pickle.dumps(s))}


# Arguments of train(), and the last scale, if known.
TRAININGS = [
    ({}, 128.0 * 2 ** 3 * 0.5), ({"step": clip}, 128.0 * 4),
    ({"skip": None, "every": 2}, 128.0 * 4), ({"skip": None, "loss_of": penalty}, 128.0 * 16),
    (pickled(torch.bfloat16), 128.0 * 16), (pickled(torch.float16), 128.0 * 16),
    ({"skip": None, "dtype": torch.bfloat16}, 128.0 * 16),
    ({"skip": None, "dtype": torch.float64}, 128.0 * 16),
    ({"scaler": partial(loaded, False)}, None), ({"scaler": partial(loaded, True)}, None),
    *(({"make_optimizer": partial(getattr(torch.optim, name), lr=0.1, **options),
        "step": step}, 128.0 * 4)
      for name, options in (("SGD", {"momentum": 0.9}), ("SGD", {"foreach": True}),
                            ("SGD", {"fused": True}), ("Adam", {}),
                            ("Adam", {"fused": True}), ("AdamW", {"foreach": True}),
                            ("AdamW", {"fused": True}), ("Adagrad", {"fused": True}))
      for step in (plain, unscale_clip))]


class Scaler(unittest.TestCase):
    @same_as_stock(*range(len(TRAININGS)))
    def test_training(self, row):
        arguments, scale = TRAININGS[row]
        seen = train(**arguments)
        assert scale in (None, seen[1]["scale"]), arguments
        return seen

    @same_as_stock()
    def test_mixed_gradients_with_slices(self):
        """"Perfect storm": dense, sliced and 16-bit gradients, an inf in each."""
        seen = []
        for dirty in range(-1, 5):
            params = []
            for make in (lambda: torch.ones(6, 6), lambda: torch.ones(6, 6)[:, :3],
                         lambda: torch.ones(6, 6).t(),
                         lambda: torch.ones(6, 6).bfloat16(),
                         lambda: torch.ones(6, 6).half()):
                grad = make() * 4
                param = torch.zeros_like(grad)
                param.grad = grad
                params.append(param)
            if dirty >= 0:
                params[dirty].grad[1, 1] = math.inf
            total = sum(found_in(params))
            assert total == (0.0 if dirty < 0 else 1.0)
            seen += [total, [p.grad for p in params]]
        return seen

    @same_as_stock()
    def test_sparse_gradients(self):
        seen = []
        some, twice = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([[1, 1], [2, 2]])
        for index, dtype, values, expected in (
                (some, torch.float32, [16.0, 32.0, 64.0], 0),
                (some, torch.float32, [16.0, math.inf, 64.0], 1),
                (some, torch.float32, [16.0, math.nan, 64.0], 1),
                (some, torch.float16, [16.0, 32.0, 64.0], 0),
                (twice, torch.float16, [64000.0, 64000.0], 1)):
            param = torch.zeros(2, 3, dtype=dtype)
            param.grad = torch.sparse_coo_tensor(
                index, torch.tensor(values, dtype=dtype), (2, 3))
            assert found_in([param]) == [expected]
            seen.append(param.grad.to_dense())
        return seen

    @same_as_stock()
    def test_spoiled_between_unscale_and_step(self):
        """The step runs, because found_inf was determined before."""
        net, scaler = model(), scaler_of()
        optimizer = SGD(net.parameters())
        batch, target = batches()[0]
        scaler.scale(mse(net(batch), target)).backward()
        scaler.unscale_(optimizer)
        spoil(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert not all(torch.isfinite(p).all() for p in net.parameters())
        return weights(net), scaler.state_dict()

    @same_as_stock()
    def test_two_models_two_optimizers(self):
        nets, scaler, seen = [model(0), model(1)], scaler_of(), []
        optimizers = [SGD(n.parameters()) for n in nets]
        for index, (batch, target) in enumerate(batches()):
            for optimizer in optimizers:
                optimizer.zero_grad()
            outputs = [n(batch) for n in nets]
            loss = mse(outputs[0] + 0.3 * outputs[1], target)
            scaler.scale(loss).backward(retain_graph=True)
            scaler.scale(mse(outputs[1], target)).backward()
            if index == 2:
                spoil(optimizers[1])
            scaler.unscale_(optimizers[0])
            before = [weights(n) for n in nets]
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            moved = [not torch.equal(b[0], weights(n)[0])
                     for b, n in zip(before, nets)]
            assert moved == [True, index != 2]
            seen += [weights(n) for n in nets] + [scaler.get_scale()]
        assert scaler.get_scale() == 128.0 * 2 ** 3 * 0.5
        return seen

    @same_as_stock()
    def test_sharded_scaler_of_one_process(self):
        import torch.distributed as dist
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            scaler = ShardedGradScaler(device="cpu", init_scale=128.0,
                                       growth_interval=1)
            return train(scaler=lambda: scaler)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
