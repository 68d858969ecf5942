"""The optimizers' check_during_backward: the same bits as without, whatever happens
between backward and step."""

import copy
import gc
import math
import pickle
import weakref

from support import TestCase, main, run_ranks

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import swamp_torch
from swamp_torch import SGD, Adam, AdamW

WIDTH = 128  # a weight has two blocks


class Net(torch.nn.Module):
    """Large and small parameters in turn, and one that is used twice."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(200, WIDTH)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(),
            torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 65),
            torch.nn.Linear(65, WIDTH))
        self.to(dtype)

    def forward(self, tokens):
        logits = self.layers(self.embedding(tokens)) @ self.embedding.weight.t()
        return torch.nn.functional.cross_entropy(logits.float(), tokens)


def tokens(step):
    return torch.randint(200, (32,), generator=torch.Generator().manual_seed(step))


def train(check, kind=AdamW, dtype=torch.float32, max_norm=0.1, scale=None,
          micro=1, none=True, between=None, wrap=None, steps=6, first=0):
    """What the steps give and the weights after them. between(net, optimizer,
    scaler, step) is called before each step. `first` chooses the tokens."""
    net = Net(dtype)
    wrapped = wrap(net) if wrap else net
    optimizer = kind(wrapped.parameters(), lr=1e-2, max_norm=max_norm,
                     check_during_backward=check)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, growth_interval=2,
                                  enabled=scale is not None)
    seen = []
    for step in range(steps):
        for part in range(micro(step) if callable(micro) else micro):
            loss = wrapped(tokens(first + 10 * step + part))
            scaler.scale(loss).backward()
            seen.append(loss.detach())
        if between:
            optimizer = between(wrapped, optimizer, scaler, step) or optimizer
        scaler.step(optimizer)
        scaler.update()
        norm = optimizer.grad_norm
        seen += [torch.tensor(math.nan) if norm is None else norm,
                 torch.tensor(optimizer.skipped)]
        wrapped.zero_grad(set_to_none=none)
    return seen + [p.detach().clone() for p in wrapped.parameters()]


def large(net):
    return net.layers[0].weight


# What may happen between backward and step. Writes through .data of a gradient are
# not among it: nothing shows them.

def multiplied(net, optimizer, scaler, step):
    large(net).grad.mul_(0.5)


def replaced(net, optimizer, scaler, step):
    large(net).grad = large(net).grad * 0.5


def set_data(net, optimizer, scaler, step):
    large(net).grad.data = large(net).grad * 0.5


def spoiled(net, optimizer, scaler, step):
    if step == 2:
        large(net).grad[1, 2] = math.inf


def clipped(net, optimizer, scaler, step):
    torch.nn.utils.clip_grad_value_(net.parameters(), 1e-4)


def by_swamp(net, optimizer, scaler, step):
    swamp_torch.clip_grad_norm_(net.parameters(), 1e-3)


def unscaled(net, optimizer, scaler, step):
    scaler.unscale_(optimizer)


def removed(net, optimizer, scaler, step):
    if step == 2:
        large(net).grad = None


def transposed(net, optimizer, scaler, step):
    large(net).grad = large(net).grad.t().contiguous().t()


def frozen(net, optimizer, scaler, step):
    large(net).requires_grad_(step % 3 != 1)


def added(net, optimizer, scaler, step):
    if step == 2:
        optimizer.add_param_group(dict(params=[torch.nn.Parameter(torch.ones(64, 256))]))
    if step > 2:
        param = optimizer.param_groups[1]["params"][0]
        optimizer.zero_grad = None  # net.zero_grad() leaves it
        param.grad = None
        (param.square().sum() * scaler.get_scale()).backward()


def pickled(net, optimizer, scaler, step):
    """Goes on with a copy that has the parameters of the net."""
    if step != 2:
        return None
    copied = pickle.loads(pickle.dumps(optimizer))
    for group, own in zip(copied.param_groups, optimizer.param_groups):
        for one, param in zip(group["params"], own["params"]):
            copied.state[param] = copied.state.pop(one)
        group["params"] = list(own["params"])
    return copied


def loaded(net, optimizer, scaler, step):
    if step == 2:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def toggled(net, optimizer, scaler, step):
    optimizer.check_during_backward = not optimizer.check_during_backward


def other_norm(net, optimizer, scaler, step):
    optimizer.param_groups[0]["max_norm"] = (0.1, 0.0, 0.2)[step % 3]


def again(net, optimizer, scaler, step):
    """One more backward than the last step had, or as many."""
    if step % 2:
        scaler.scale(net(tokens(step))).backward()


BETWEEN = (multiplied, replaced, set_data, spoiled, clipped, by_swamp, removed,
           transposed, frozen, added, pickled, loaded, toggled, other_norm, again)
INF = {torch.float32: 2.0 ** 126, torch.bfloat16: 2.0 ** 126,
       torch.float16: 2.0 ** 22}  # the first steps overflow


def use(optimizer, net, scaler=None):
    """A backward pass and a step; in between, inf is written to a gradient in a way
    that nothing shows. Returns whether it was noticed."""
    net.zero_grad()
    loss = net(tokens(1))
    (scaler.scale(loss) if scaler else loss).backward()
    large(net).grad.data[3, 4] = math.inf
    (scaler.step(optimizer), scaler.update()) if scaler else optimizer.step()
    return optimizer.skipped or not (optimizer.grad_norm is None
                                     or optimizer.grad_norm.isfinite())


def setUpModule():
    torch.set_num_threads(1)  # threads that wait for busy cores take minutes


class DuringBackward(TestCase):
    def check(self, **row):
        with self.subTest(**{k: getattr(v, "__name__", v) for k, v in row.items()}):
            self.assert_same(train(True, **row), train(False, **row))

    def test_steps(self):
        for dtype in INF:
            for max_norm, scale in ((0.1, None), (0.1, 100.0), (0.1, INF[dtype]),
                                    (None, INF[dtype])):
                self.check(dtype=dtype, max_norm=max_norm, scale=scale)
        for kind in (Adam, SGD):
            self.check(kind=kind, scale=1024.0)

    def test_micro_batches(self):
        for none in (True, False):
            for micro in (3, lambda step: 1 + step % 3):
                self.check(micro=micro, none=none, scale=1024.0)

    def test_between(self):
        for between in BETWEEN:
            for scale in (None, 1024.0):
                self.check(between=between, scale=scale)
        self.check(between=unscaled, scale=1024.0)

    def test_hooks_of_the_user(self):
        """Before the optimizer's and after them."""
        for before in (True, False):
            def wrap(net):
                def halve(param):
                    param.grad.mul_(0.5)
                if before:
                    large(net).register_post_accumulate_grad_hook(halve)
                    return net
                forward = net.forward

                def late(x):
                    net.forward = forward  # the optimizer exists now
                    large(net).register_post_accumulate_grad_hook(halve)
                    return forward(x)
                net.forward = late
                return net
            self.check(wrap=wrap, scale=1024.0)

    def test_is_used(self):
        """The gradients are not read after backward: a write that nothing shows is
        not noticed. It is if they must be read."""
        for max_norm, scaled in ((0.1, True), (0.1, False), (None, True)):
            for check in (True, False):
                with self.subTest(max_norm=max_norm, scaled=scaled, check=check):
                    net = Net(torch.float32)
                    optimizer = SGD(net.parameters(), lr=1e-3, max_norm=max_norm,
                                    check_during_backward=check)
                    scaler = torch.amp.GradScaler("cpu") if scaled else None
                    self.assertTrue(use(optimizer, net, scaler))  # nothing known yet
                    with torch.no_grad():
                        for p, q in zip(net.parameters(),
                                        Net(torch.float32).parameters()):
                            p.copy_(q)
                    net.zero_grad()
                    loss = net(tokens(1))
                    (scaler.scale(loss) if scaler else loss).backward()
                    (scaler.step(optimizer), scaler.update()) if scaler else (
                        optimizer.step())
                    self.assertEqual(use(optimizer, net, scaler), not check)

    def test_the_hooks_go_with_the_optimizer(self):
        net = Net(torch.float32)

        def hooks():
            return sum(len(p._post_accumulate_grad_hooks or ())
                       for p in net.parameters())

        optimizer = AdamW(net.parameters(), max_norm=1.0, check_during_backward=True)
        self.assertEqual(hooks(), 4)  # the large ones
        copied = copy.deepcopy(net)
        self.assertFalse(any(p._post_accumulate_grad_hooks
                             for p in copied.parameters()))
        for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            self.assertTrue(other.check_during_backward)
            self.assertTrue(other.param_groups[0]["params"][0]
                            ._post_accumulate_grad_hooks)
        self.assertEqual(hooks(), 4)
        self.assertNotIn("check_during_backward",
                         optimizer.state_dict()["param_groups"][0])
        net(tokens(0)).backward()
        optimizer.step()
        group = optimizer.param_groups[0]
        group["params"] = [p for p in group["params"] if p is not large(net)]
        optimizer.step()
        self.assertEqual(hooks(), 3)
        del optimizer
        gc.collect()
        self.assertEqual(hooks(), 0)
        optimizer = AdamW(net.parameters(), max_norm=1.0, check_during_backward=True)
        net(tokens(0)).backward()
        optimizer.step()
        alive = weakref.ref(large(net))
        del optimizer, net, other
        gc.collect()
        self.assertIsNone(alive())

    def test_sparse_gradients(self):
        def trained(check):
            torch.manual_seed(1)
            table = torch.nn.Embedding(200, WIDTH, sparse=True)
            optimizer = SGD(table.parameters(), lr=0.1, check_during_backward=check)
            for step in range(3):
                table(tokens(step)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return table.weight.detach()

        self.assert_same(trained(True), trained(False))

    def test_a_graph_is_used_twice(self):
        def trained(check):
            net = Net(torch.float32)
            optimizer = AdamW(net.parameters(), max_norm=0.1,
                              check_during_backward=check)
            for step in range(4):
                loss = net(tokens(step))
                loss.backward(retain_graph=True)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return [p.detach() for p in net.parameters()]

        self.assert_same(trained(True), trained(False))

    def test_ranks(self):
        if not (dist.is_available() and dist.is_gloo_available()):
            self.skipTest("this torch has no gloo")
        run_ranks(on_ranks, 2)


def summed(_, bucket):
    """A DDP hook that writes the gradients without increasing their version."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(
        lambda future: future.value()[0])


def on_ranks(rank, _):
    def ddp(view, hook):
        def wrap(net):
            wrapped = DistributedDataParallel(net, gradient_as_bucket_view=view)
            if hook:
                wrapped.register_comm_hook(None, hook)
            return wrapped
        return wrap

    def fsdp(net):
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"),
                                        use_orig_params=True)

    def reduced(net, optimizer, scaler, step):
        for p in net.parameters():
            dist.all_reduce(p.grad)

    test = TestCase()
    for row in (*(dict(wrap=ddp(view, hook), none=none, micro=micro)
                  for view in (False, True) for hook in (None, summed)
                  for none, micro in ((True, 1), (False, 2))),
                dict(wrap=fsdp, max_norm=None), dict(between=reduced)):
        each = [train(check, scale=1024.0, first=1000 * rank, steps=4, **row)
                for check in (True, False)]
        test.assert_same(*each, row)


if __name__ == "__main__":
    main()
