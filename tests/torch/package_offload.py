"""swamp_torch.offload against the classes without offload, to the bit, with copies that
are late and out of order (late_copies.py)."""

import collections
import contextlib
import copy
import gc
import io
import os
import random
import weakref

from support import CI, TestCase, a_fifth, main, run_ranks

import torch

import swamp_torch
from late_copies import LateCopies
from swamp_torch import offload

# Small, so that the model has several of each, and parameters of several ranges.
offload._BUCKET = offload._Host._bucket_elements = 1024
HALF = torch.bfloat16


class Model(torch.nn.Module):
    """Blocks of which two share a weight, and one shares one that is used before, a
    frozen parameter, one that only some passes use, and parameters of two dtypes."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(16, 96)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(96, 96) for _ in range(3))
        self.blocks[2].weight = self.blocks[0].weight
        self.before = torch.nn.Linear(96, 96)
        self.before.weight = self.blocks[1].weight
        self.to(dtype)
        self.norm = torch.nn.LayerNorm(96)
        self.sometimes = torch.nn.Parameter(torch.ones(96))
        self.frozen = torch.nn.Parameter(torch.ones(96), requires_grad=False)

    def forward(self, x, use=True):
        x = self.before(self.first(x.to(self.first.weight.dtype)))
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        x = self.norm(x.float()) * self.frozen
        return x * self.sometimes if use else x


def loss_of(model, step, scale=1.0):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(4, 16, generator=generator)
    return model(x, step % 3 != 1).square().mean() * scale * (100 if step == 2 else 1)


def groups_of(model):
    params = dict(model.named_parameters())
    return [dict(params=[p for n, p in params.items() if p.ndim > 1]),
            dict(params=[p for n, p in params.items() if p.ndim < 2], lr=3e-3)]


def state_of(model, optimizer):
    """All tensors of model and optimizer."""
    if hasattr(optimizer, "synchronize"):
        optimizer.synchronize()
    states = optimizer.state_dict()["state"]
    return [p.detach().clone() for p in model.parameters()] + [
        states[i][k] for i in sorted(states) for k in sorted(states[i])]


def train(model, optimizer, steps=range(4)):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def scaled(model, optimizer, steps=range(4), unscale=False):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 7)
    for step in steps:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step == 1:
            model.norm.weight.grad[3] = float("nan")
        if unscale:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        assert optimizer.skipped == (step == 1)
        scaler.update()


def unscaled(model, optimizer):
    scaled(model, optimizer, unscale=True)


def accumulated(model, optimizer, quiet=contextlib.nullcontext):
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        with quiet():
            loss_of(model, 2 * step).backward()
        loss_of(model, 2 * step + 1).backward()
        optimizer.step()


def without_copies(model, optimizer):
    accumulated(model, optimizer, getattr(optimizer, "no_sync", contextlib.nullcontext))


def written(model, optimizer):
    """Others write gradients and weights, and freeze and unfreeze parameters."""
    model.norm.weight.data.mul_(0.5)  # without a version, as a broadcast at the start
    train(model, optimizer)
    other = copy.deepcopy(model.blocks.state_dict())
    train(model, optimizer, [1])
    other["1.weight"] += 0.125
    model.blocks.load_state_dict(other)
    model.first.weight.requires_grad_(False)
    model.frozen.requires_grad_(True)
    optimizer.param_groups[0]["lr"] = 1e-2
    for step in (4, 5):
        model.zero_grad()
        loss_of(model, step).backward()
        with torch.no_grad():
            model.blocks[0].weight.grad.mul_(0.5)
            model.norm.bias.grad = torch.ones(96)
        optimizer.step()
        optimizer.step()
    optimizer.reload_model_params()
    train(model, optimizer, range(6, 8))


def restarted(model, optimizer):
    """Others drop, replace and exchange states."""
    train(model, optimizer)
    optimizer.state.clear()
    train(model, optimizer)
    optimizer.state = collections.defaultdict(dict)
    train(model, optimizer)
    optimizer.state[model.first.bias] = copy.deepcopy(optimizer.state[model.blocks[0].bias])
    train(model, optimizer)


def scheduled(model, optimizer):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for step in range(4):
        train(model, optimizer, [step])
        scheduler.step()


def reloaded(model, optimizer):
    """State dicts of each class go into the other."""
    train(model, optimizer)
    other = (swamp_torch if isinstance(optimizer, offload._Offloaded) else offload)
    state = optimizer.state_dict()
    getattr(optimizer, "synchronize", int)()
    made = getattr(other, type(optimizer).__name__)(groups_of(model))
    made.load_state_dict(copy.deepcopy(state))
    assert all(a is b for a, b in zip(made.param_groups[0]["params"],
                                      optimizer.param_groups[0]["params"]))
    train(model, made, range(4, 6))
    optimizer.load_state_dict(made.state_dict())
    getattr(made, "synchronize", int)()
    train(model, optimizer, range(6, 8))


ROWS = [
    ("AdamW", {}, train), ("AdamW", dict(max_norm=0.05, clip_rule="mindspore"), train),
    ("AdamW", dict(max_norm=0.05), train),
    ("Adam", dict(amsgrad=True, weight_decay=0.1, max_norm=0.05), scaled),
    ("SGD", dict(lr=0.1, momentum=0.9, max_norm=0.05), scaled),
    ("SGD", dict(lr=0.1), accumulated),
    ("AdamW", dict(max_norm=0.05), scaled), ("AdamW", {}, unscaled),
    ("AdamW", dict(max_norm=0.05), accumulated),
    ("AdamW", dict(max_norm=0.05), without_copies),
    ("AdamW", {}, scheduled), ("AdamW", dict(max_norm=0.05), written),
    ("AdamW", dict(max_norm=0.05), reloaded), ("AdamW", {}, restarted),
    ("AdamW", dict(master_weights=False, rounding="kahan", max_norm=0.05), train),
    ("AdamW", dict(moments="8bit", master_weights=False, seed=3), reloaded),
]


def retried(copies, act, taken=lambda: None):
    """Acts until no thread was lost; `taken` follows a step that was taken."""
    while True:
        try:
            return act()
        except RuntimeError as error:
            if "thread" not in str(error) and "the step was taken" not in str(error):
                raise
            for one in copies:
                one.deadly = 0.0
                one.revive()
            if "the step was taken" in str(error):
                act = taken


class Fails(torch.autograd.Function):
    """Fails in backward."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        raise ValueError("a failure")


def ranks_step(rank, world):
    """DistributedDataParallel, whose ranks have different data."""
    nets, results = [Model(), Model()], []
    for net, cls in zip(nets, (swamp_torch.AdamW, offload.AdamW)):
        parallel = torch.nn.parallel.DistributedDataParallel(
            net, find_unused_parameters=True)
        options = {} if cls is swamp_torch.AdamW else dict(
            copies=lambda device: LateCopies(delay=1e-4))
        optimizer = cls(net.parameters(), max_norm=0.05, **options)
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(4, 16, generator=torch.Generator().manual_seed(
                world * step + rank))
            parallel(x).square().mean().backward()
            optimizer.step()
        results.append(state_of(net, optimizer))
    return results


class Offload(TestCase):
    def test_as_without(self):
        for number, (name, options, how) in enumerate(a_fifth(ROWS, 1) + (
                [] if CI else ROWS[7:8] + ROWS[13:14])):
            for dtype in (torch.float32, HALF):
                plain = Model(dtype)
                reference = getattr(swamp_torch, name)(groups_of(plain), **options)
                how(plain, reference)
                stepped = {n for n, p in plain.named_parameters() if p in reference.state}
                for threads, watched, late in ((None, False, False), (1, True, True),
                                               (2, False, True)):
                    with self.subTest(name=name, how=how.__name__, **options,
                                      dtype=dtype, threads=threads, late=late):
                        model = Model(dtype)
                        copies = LateCopies(number, 2e-4) if late else offload.Copies()
                        optimizer = getattr(offload, name)(
                            groups_of(model), threads=threads,
                            module=model if watched else None,
                            copies=lambda device: copies, **options)
                        how(model, optimizer)
                        self.assert_same(state_of(plain, reference), state_of(model, optimizer))
                        if reference.grad_norm is not None:
                            self.assertEqual(optimizer.grad_norm, reference.grad_norm)
                        self.assertEqual(stepped, {
                            n for n, p in model.named_parameters() if p in optimizer.state})

    def test_checks_while_backward_runs(self):
        """From the second step on each chunk is checked as soon as it has arrived."""
        model, copies = Model(), LateCopies(0, 1e-4)
        optimizer = offload.AdamW(model.parameters(), max_norm=0.05,
                                  copies=lambda device: copies)
        train(model, optimizer, range(1))
        loss_of(model, 2).backward()
        chunks = optimizer._chunks
        self.assertGreater(len(chunks), 1)
        self.assertTrue(all(chunk.running is not None for chunk in chunks))
        found, norm = optimizer.check_gradients()
        self.assertFalse(found)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        self.assertEqual(norm, swamp_torch.grad_norm_and_check(
            grads, torch.zeros(1), torch.ones(1)))
        model.norm.bias.grad[0] = float("inf")
        self.assertTrue(optimizer.check_gradients(0.5)[0])

    def test_forward_waits_for_its_weights_only(self):
        model, copies = Model(), LateCopies(0)
        optimizer = offload.SGD(model.parameters(), copies=lambda device: copies,
                                module=model)
        train(model, optimizer, range(1))
        optimizer.synchronize()
        waited = []
        copies.before_use = waited.append
        model(torch.randn(2, 16))
        events = {n: optimizer._slots[p].leaving for n, p in model.named_parameters()}
        self.assertEqual(len(events["blocks.0.weight"]), 3)
        at = [waited.index(event) for name in ("blocks.0.weight", "blocks.2.bias")
              for event in events[name]]
        first = waited.index(events["first.weight"][-1])
        self.assertLess(first, min(at))
        self.assertLess(waited.index(events["norm.weight"][-1]), min(at))
        self.assertLess(waited.index(events["blocks.1.weight"][-1]), min(at))
        del copies.before_use
        self.assertTrue(all(v.isfinite().all() for v in model.state_dict().values()))

    def test_hostile(self):
        """Random orders and delays, exceptions in backward, lost threads, and two
        optimizers: no update is lost, and no bit changes. ORDERS=10000 takes 10 minutes."""
        orders = int(os.environ.get("ORDERS", 2000 if CI else 400))
        steps = 20
        for seed in range(orders // steps):
            choose = random.Random(seed)
            dtype = choose.choice((torch.float32, HALF))
            models = [Model(dtype), Model(dtype)]
            copies = [LateCopies(2 * seed + i, choose.choice((0, 0, 1e-4)))
                      for i in range(2)]
            optimizers = []
            for model, cls, late in zip(models, (swamp_torch, offload), (False, True)):
                halves = groups_of(model)
                made = []
                for half, one in zip(halves, copies):
                    options = dict(copies=lambda device, one=one: one,
                                   module=model if seed % 2 else None) if late else {}
                    made.append(cls.AdamW([half], max_norm=0.05, **options))
                optimizers.append(made)
            for step in range(steps):
                if seed % 3 == 2 and choose.random() < 0.5:
                    choose.choice(copies).deadly = 0.02
                event = choose.random()

                def backward(model):
                    model.zero_grad(set_to_none=event < 0.5)
                    loss_of(model, 7 * seed + step).backward()

                def fail(model):
                    x = Fails.apply(model.first(torch.randn(4, 16).to(dtype)))
                    for block in model.blocks:
                        x = block(x)
                    x.float().square().sum().backward()
                for model, made in zip(models, optimizers):
                    if event < 0.2:
                        with self.assertRaisesRegex(ValueError, "a failure"):
                            retried(copies, lambda: fail(model))
                    retried(copies, lambda: backward(model))
                    for optimizer in made:
                        retried(copies, optimizer.step,
                                getattr(optimizer, "synchronize", None))
            retried(copies, lambda: [o.synchronize() for o in optimizers[1]])
            for plain, made in zip(*optimizers):
                with self.subTest(seed=seed):
                    self.assert_same(state_of(models[0], plain), state_of(models[1], made))
            for one in copies:
                one.kill()

    def test_lost_threads(self):
        """Errors say whether the step was taken; the next call goes on."""
        for lost in ("before backward", "before the step", "in the step"):
            with self.subTest(lost=lost):
                model, copies = Model(), LateCopies(0)
                optimizer = offload.AdamW(model.parameters(),
                                          copies=lambda device: copies)
                train(model, optimizer, range(1))
                before = state_of(model, optimizer)
                optimizer.zero_grad()
                if lost == "before backward":
                    copies.kill()
                    with self.assertRaisesRegex(RuntimeError, "a thread that has ended"):
                        loss_of(model, 1).backward()
                    self.assert_same(before, state_of(model, optimizer)[:len(before)])
                    continue
                with optimizer.no_sync():
                    loss_of(model, 1).backward()
                if lost == "in the step":
                    optimizer._take_gradients(False)
                copies.kill()
                taken = "was taken" if lost == "in the step" else "has ended"
                with self.assertRaisesRegex(RuntimeError, taken):
                    optimizer.step()
                copies.revive()
                if lost == "before the step":
                    self.assert_same(before, state_of(model, optimizer))
                    optimizer.step()
                plain = Model()
                reference = swamp_torch.AdamW(plain.parameters())
                train(plain, reference, range(2))
                self.assert_same(state_of(plain, reference), state_of(model, optimizer))

    def test_torn(self):
        """An error in a step waits for the weights that are on their way."""
        model, copies = Model(), LateCopies(0, 1e-2)
        optimizer = offload.AdamW(model.parameters(), copies=lambda device: copies)
        after = optimizer._host._after
        optimizer._host._after = lambda bucket, begin, end: (
            after(bucket, begin, end), begin and [].pop())  # after the second range
        loss_of(model, 0).backward()
        with self.assertRaises(IndexError):
            optimizer.step()
        self.assertTrue(all(p.isfinite().all() for p in model.parameters()))

    def test_gaps(self):
        """A large parameter with gaps is sent once, when it is stepped, others in ranges."""
        copies, sent = offload.Copies(), []
        start = copies.start
        copies.start = lambda destination, source: (
            sent.append(tuple(destination.shape)), start(destination, source))[1]
        params = [torch.nn.Parameter(torch.randn(100, columns)[:, :100])
                  for columns in (150, 100)]
        optimizer = offload.SGD(params, lr=0.5, copies=lambda device: copies)
        for step in range(2):
            for param in params:
                param.grad = torch.ones(100, 100)
            expected = [p.detach() - 0.5 for p in params]
            sent.clear()
            optimizer.step()
            optimizer.synchronize()
            self.assertEqual(sent[-4:], [(100, 100), (4096,), (4096,), (1808,)])
            self.assertNotIn((4096,), sent[:-3])
            for param, value in zip(params, expected):
                self.assert_same(param.detach(), value)

    def test_threads(self):
        """The caller's number of threads stays."""
        before = torch.get_num_threads()
        model = Model()
        optimizer = offload.AdamW(model.parameters(), threads=3, max_norm=1.0)
        seen = []
        step = optimizer._host._step
        optimizer._host._step = lambda scale: (seen.append(torch.get_num_threads()),
                                               step(scale))
        train(model, optimizer, range(2))
        seen.append(optimizer._pool.submit(torch.get_num_threads).result())
        self.assertEqual(seen, [3, 3, 3])
        self.assertEqual(torch.get_num_threads(), before)

    def test_is_freed(self):
        """The hooks of model and parameters keep nothing alive."""
        model = Model()
        optimizer = offload.AdamW(model.parameters(), module=model, max_norm=1.0)
        train(model, optimizer)
        held = [weakref.ref(optimizer)] + [
            weakref.ref(slot.host) for slot in optimizer._slots.values()]
        del optimizer
        gc.collect()
        self.assertEqual([ref() for ref in held], [None] * len(held))
        loss_of(model, 1).backward()
        model.state_dict()

    def test_model_is_saved(self):
        model = Model()
        optimizer = offload.AdamW(model.parameters(), module=model)
        with io.BytesIO() as file:
            torch.save(model, file)
            file.seek(0)
            same = torch.load(file, weights_only=False)
        train(model, optimizer)
        self.assert_same(loss_of(same, 0), loss_of(Model(), 0))
        loaded = []
        optimizer.register_state_dict_pre_hook(lambda _: loaded.append(1))
        optimizer.state_dict()
        self.assertEqual(loaded, [1])

    def test_refuses(self):
        weight = torch.nn.Parameter(torch.ones(3))
        flat = torch.nn.Parameter(torch.ones(3))
        flat._fsdp_flattened = True
        double = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        for text, options in (
                ("threads: got 0", dict(params=[weight], threads=0)),
                ("unscale_grads: got True", dict(params=[weight], unscale_grads=True)),
                ("params\\[1\\]: got a Parameter of torch.float64",
                 dict(params=[weight, double])),
                ("not divided over ranks", dict(params=[flat])),
                ("max_norm: got -1", dict(params=[weight], max_norm=-1)),
                ("clip_rule: got 'other'", dict(params=[weight], clip_rule="other"))):
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                offload.AdamW(**options)
        copies = LateCopies()
        optimizer = offload.AdamW([weight], copies=lambda device: copies)
        copies.host_like = None
        with self.assertRaisesRegex(TypeError, "NoneType"):
            optimizer.add_param_group(dict(params=[torch.nn.Parameter(torch.ones(2))]))
        del copies.host_like
        self.assertEqual(len(optimizer.param_groups), 1)
        optimizer.step()
        for name, value, text in (("clip_rule", "other", "clip_rule: got 'other'"),
                                  ("params", [weight, flat], "got 2 parameters, expected 1")):
            kept = optimizer.param_groups[0][name]
            optimizer.param_groups[0][name] = value
            with self.assertRaisesRegex(ValueError, text):
                optimizer.step()
            optimizer.param_groups[0][name] = kept
        weight.data = weight.data.half()
        with self.assertRaisesRegex(RuntimeError, "make the optimizer after model.to"):
            optimizer.step()
        weight.data = weight.data.float()
        with self.assertRaisesRegex(TypeError, "save its state_dict"):
            copy.deepcopy(optimizer)
        table = torch.nn.Embedding(4, 3, sparse=True)
        optimizer.add_param_group(dict(params=list(table.parameters())))
        with self.assertRaisesRegex(RuntimeError, "torch.sparse_coo"):
            table(torch.tensor([1])).sum().backward()

    def test_ranks(self):
        if not torch.distributed.is_available():
            self.skipTest("no gloo")
        for plain, made in run_ranks(ranks_step, 2):
            self.assert_same(plain, made)


if __name__ == "__main__":
    main()
