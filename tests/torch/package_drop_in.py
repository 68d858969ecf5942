"""swamp_torch.AdamW, Adam and SGD in the place of torch.optim's fused classes: the same
bits, and state that goes both ways. package_torch_suite.py runs PyTorch's own tests, of
schedulers, hooks and closures too."""

import copy
import inspect
import os
import tempfile
import warnings
from functools import partial

import optimizers
from optimizers import (CASES, NAMES, all_params, give_grads, run, scaled,
                        tensors)
from support import TestCase, main

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (get_optimizer_state_dict,
                                                     set_optimizer_state_dict)

import swamp_torch

LR = 0.01
# Multiples of 64: PyTorch's vector body, whose bits are promised.
SHAPES = [(64,), (128, 96), (0,), (3, 64)]


def params(shapes=SHAPES, dtype=torch.float32):
    return optimizers.params(shapes, (dtype,))


def stock(name, some, options, **how):
    return getattr(torch.optim, name)(some, **{"lr": LR, **options, **how})


def ours(name, some, options, **how):
    return getattr(swamp_torch, name)(some, **{"lr": LR, **options, **how})


def moved(optimizer, result):
    """Weights and state dict of an optimizer in another."""
    result.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        for p, q in zip(all_params(optimizer), all_params(result)):
            q.copy_(p)
    return result


class Cases(TestCase):
    """Each test runs all cases."""

    def for_all(self, check):
        for name, options in CASES:
            with self.subTest(name=name, **options):
                check(name, options)

    def equal(self, a, b):
        self.assert_same(tensors(a), tensors(b))


class Bits(Cases):
    def test_fused(self):
        def check(name, options):
            for how in ({}, dict(fused=True), dict(foreach=True),
                        dict(fused=False)):
                a = run(ours(name, params(), options, **how), 0, 4)
                self.equal(a, run(stock(name, params(), options, fused=True), 0, 4))
        self.for_all(check)

    def test_tensor_lr(self):
        made = []
        for make in (ours, stock):
            lr = torch.tensor(0.05)
            made.append(make("AdamW", params(), {"lr": lr}, fused=True))
            for step in range(3):
                run(made[-1], step, 1)
                lr.mul_(0.9)
        self.equal(*made)

    def test_grad_scaler(self):
        for unscale in (False, True):
            self.for_all(lambda name, options: self.equal(
                scaled(ours(name, params(), options), unscale=unscale),
                scaled(stock(name, params(), options, fused=True), unscale=unscale)))

    def test_groups_and_missing_gradients(self):
        present = [[0, 1, 3], [0], [], [1, 3], [0, 1, 3], [0, 1, 3]]

        def check(name, options):
            made = []
            for make in (ours, stock):
                some = params()
                fused = {"fused": True} if make is stock else {}
                if name == "SGD" and make is stock:
                    fused = {}  # PyTorch's fused SGD needs all buffers or none
                optimizer = make(name, [
                    {"params": some[:2]},
                    {"params": some[2:], "lr": 0.05, "weight_decay": 0.2,
                     **({} if name == "SGD" else
                        {"betas": (0.5, 0.9), "eps": 1e-4})}],
                    options, **fused)
                for turn, indices in enumerate(present):
                    give_grads(optimizer, turn)
                    for i, p in enumerate(some):
                        if i not in indices:
                            p.grad = None
                    optimizer.step()
                made.append(optimizer)
            self.equal(*made)
        self.for_all(check)

    def test_16_bit(self):
        """The masters are what a float32 run has, with the same gradients."""
        def check(name, options):
            for dtype in (torch.float16, torch.bfloat16):
                narrow = ours(name, params(dtype=dtype), options)
                wide = stock(name, [torch.nn.Parameter(p.detach().float())
                                    for p in all_params(narrow)], options,
                             fused=True)
                for step in range(3):
                    give_grads(narrow, step)
                    for p, q in zip(all_params(narrow), all_params(wide)):
                        q.grad = p.grad.float()
                    before = [p.grad.clone() for p in all_params(narrow)]
                    narrow.step()
                    self.assert_same([p.grad for p in all_params(narrow)], before)
                    wide.step()
                for p, q in zip(all_params(narrow), all_params(wide)):
                    self.assert_same(narrow.state[p]["master_param"], q)
                    self.assert_same(p, q.to(dtype))
                    self.assertEqual(set(narrow.state[p]),
                                     {*wide.state[q], "master_param"})
                    for key, value in wide.state[q].items():
                        self.assert_same(narrow.state[p][key], value)
        self.for_all(check)

    def test_clipping(self):
        def check(name, options):
            for max_norm in (0.5, 1e9):
                some = params()
                a = ours(name, [{"params": some[:2]}, {"params": some[2:]}], options,
                         max_norm=max_norm)
                b = stock(name, params(), options, fused=True)
                for step in range(3):
                    for optimizer in (a, b):
                        give_grads(optimizer, step)
                    norm = swamp_torch.clip_grad_norm_(all_params(b), max_norm)
                    a.step()
                    b.step()
                    self.assertEqual(a.grad_norm.float(), norm)
                self.equal(a, b)
        self.for_all(check)

    def test_what_pytorch_steps(self):
        """Parameters that swamp does not step, among others."""
        def check(name, options):
            def make(make, **how):
                some = params()
                some.insert(1, torch.nn.Parameter(some[0].detach().double()))
                if "fused" not in how:
                    some.append(torch.nn.Parameter(torch.full((3,), 1 + 2j)))
                optimizer = make(name, some, options, **how)
                for step in range(3):
                    give_grads(optimizer, step)
                    optimizer.step()
                return optimizer
            self.equal(make(ours, fused=True), make(stock, fused=True))
            a, b = make(ours), make(stock)
            self.assert_same(tensors(a)[-3:], tensors(b)[-3:])
            double = all_params(a)[1]
            self.assertIs(double.dtype, torch.float64)
            self.assert_same(double, all_params(b)[1])
            # Under GradScaler they are fused, and skip with the others.
            some = [params(), params()]
            for one in some:
                one.append(torch.nn.Parameter(one[0].detach().double()))
            self.equal(scaled(ours(name, some[0], options), 0),
                       scaled(stock(name, some[1], options, fused=True), 0))
        self.for_all(check)

    def test_sparse(self):
        for make in (ours, stock):
            p = torch.nn.Parameter(torch.ones(64))
            p.grad = torch.ones(64).to_sparse()
            make("SGD", [p], {}).step()
            self.assert_same(p, torch.full((64,), 1 - LR))
            with self.assertRaisesRegex(RuntimeError, "SparseAdam"):
                make("AdamW", [p], {}).step()


class State(Cases):
    def test_both_ways(self):
        def check(name, options):
            for make, how in ((ours, {}), (stock, dict(fused=True)),
                              (stock, dict(foreach=name != "SGD")), (stock, {})):
                a = run(make(name, params(), options, **how))
                b = moved(a, ours(name, params(), options))
                c = moved(b, stock(name, params(), options, fused=True))
                self.equal(a, b)
                self.equal(b, c)
                # Also if the state came from an optimizer that was not fused.
                self.equal(scaled(b, 3), scaled(c, 3))
                self.assertLessEqual(set(a.param_groups[0]), set(b.param_groups[0]))
        self.for_all(check)

    def test_distributed_checkpoint(self):
        def check(name, options):
            def make():
                torch.manual_seed(2)
                model = torch.nn.Linear(64, 64, bias=False)
                return model, ours(name, model.parameters(), options)
            model, optimizer = make()
            run(optimizer, 0)
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # dcp's, of one process
                place = os.path.join(folder, "step")
                dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)},
                         checkpoint_id=place)
                other, loaded = make()
                other.load_state_dict(model.state_dict())
                state = {"optimizer": get_optimizer_state_dict(other, loaded)}
                dcp.load(state, checkpoint_id=place)
                set_optimizer_state_dict(other, loaded, state["optimizer"])
            self.equal(run(loaded, 3), run(optimizer, 3))
        self.for_all(check)

    def test_changes_between_steps(self):
        """What is collected once is collected again after a change."""
        def replace_gradients(optimizer):
            for p in all_params(optimizer):
                p.grad = p.grad.clone()

        def replace_data(optimizer):
            for p in all_params(optimizer):
                p.data = p.data * 0.5

        def write_state(optimizer):
            for state in optimizer.state.values():
                for key in state:
                    if key != "step":
                        state[key] = state[key] * 0.5

        def replace_states(optimizer):
            for p in all_params(optimizer):
                if optimizer.state.get(p):
                    optimizer.state[p] = {key: value.clone() for key, value
                                          in optimizer.state[p].items()}

        def drop_states(optimizer):
            optimizer.state.clear()

        def other_numbers(optimizer):
            group = optimizer.param_groups[0]
            group.update(lr=0.5, weight_decay=0.25, maximize=True)
            if "betas" in group:
                group["betas"] = (0.5, 0.9)

        def drop_a_parameter(optimizer):
            del optimizer.param_groups[0]["params"][1]

        def add_a_group(optimizer):
            optimizer.add_param_group({"params": params([(192,)]), "lr": 0.3})
            assert optimizer.param_groups[-1].get("max_norm", 0.0) == 0.0

        def other_momentum(optimizer):
            if "momentum" in optimizer.param_groups[0]:
                optimizer.param_groups[0].update(momentum=0.5)

        def take_out(optimizer):
            """Returns a function that puts the parameter back."""
            some = optimizer.param_groups[0]["params"]
            return partial(some.append, some.pop(1))

        def without_gradients(optimizer):
            p = all_params(optimizer)[1]
            hook = optimizer.register_step_pre_hook(lambda *_: setattr(p, "grad", None))
            return hook.remove

        def of_one(change):
            """Of one state; what is done to it changes no other."""
            return lambda optimizer: change(optimizer.state[all_params(optimizer)[1]])

        def of_count(change):
            return of_one(lambda state: "step" in state and change(state))

        def zero(state):
            for value in state.values():
                value.zero_()

        changes = (
            replace_gradients, replace_data, write_state, replace_states, drop_states,
            other_numbers, drop_a_parameter, add_a_group, other_momentum, take_out,
            without_gradients, of_one(zero), of_one(dict.clear),
            of_count(lambda s: s["step"].fill_(40)),
            of_count(lambda s: s.update(step=torch.tensor(7.0))),
            of_count(lambda s: s.update(step=s["step"].clone())),
            of_count(lambda s: s.update(step=s["step"].double().float())),
            of_count(lambda s: setattr(s["step"], "data", torch.tensor(7.0))))

        def check(name, options):
            for number, change in enumerate(changes):
                made = []
                for make in (ours, stock):
                    # PyTorch's fused SGD needs all momentum buffers or none.
                    how = {} if make is ours or name == "SGD" else {"fused": True}
                    made.append(run(make(name, params(), options, **how), 0, 2))
                    undo = change(made[-1])
                    made[-1].step()
                    run(made[-1], 2, 2)
                    if callable(undo):
                        undo()
                        run(made[-1], 4, 2)
                self.assert_same(tensors(made[0]), tensors(made[1]), number)
        self.for_all(check)


class Protocol(Cases):
    def test_arguments(self):
        for name in NAMES:
            own = inspect.signature(getattr(swamp_torch, name)).parameters
            theirs = inspect.signature(getattr(torch.optim, name)).parameters
            self.assertEqual(list(own)[:-1][:4], list(theirs)[:4])
            for key, parameter in theirs.items():
                self.assertEqual((own[key].default, own[key].kind),
                                 (parameter.default, parameter.kind), (name, key))
            storage = {"master_weights", "rounding", "moments", "seed"}
            self.assertEqual(
                set(own) - set(theirs),
                {"max_norm", "clip_rule", "process_group", "unscale_grads"}
                | (set() if name == "SGD" else storage))
            self.assertTrue(issubclass(getattr(swamp_torch, name),
                                       getattr(torch.optim, name)))

    def test_moving_average(self):
        model = torch.nn.Linear(64, 64).bfloat16()
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=swamp_torch.get_ema_multi_avg_fn(0.999)).float()
        for step in range(3):
            average.update_parameters(model)
            now = [p.detach().float() for p in model.parameters()]
            if step == 0:  # the first update copies
                expected = now
            else:
                torch._foreach_lerp_(expected, now, 1 - 0.999)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(1)
        self.assert_same([p.detach() for p in average.parameters()], expected)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            old, new = torch.ones(6, 8, dtype=dtype), torch.zeros(6, 8, dtype=dtype)
            swamp_torch.get_ema_multi_avg_fn(0.9)([old], [new], 1)
            self.assertEqual((old._version, new._version), (1, 0), dtype)
        # What swamp does not take is PyTorch's.
        for dtype in (torch.float64, torch.complex64, torch.int64):
            pair = [[torch.ones(3).to(dtype)], [torch.zeros(3).to(dtype)]]
            copy = [[t.clone() for t in some] for some in pair]
            swamp_torch.get_ema_multi_avg_fn(0.5)(*pair, 1)
            torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)(*copy, 1)
            self.assertTrue(torch.equal(pair[0][0], copy[0][0]), dtype)
        with self.assertRaisesRegex(ValueError, "decay"):
            swamp_torch.get_ema_multi_avg_fn(1.5)

    def test_refused(self):
        """In PyTorch's words."""
        for name in NAMES:
            make = getattr(swamp_torch, name)
            with self.assertRaisesRegex(RuntimeError, "cannot be `True` together"):
                make(params(), fused=True, foreach=True)
        for make in (swamp_torch.AdamW, torch.optim.AdamW):
            optimizer = make(params(), capturable=True)
            give_grads(optimizer, 0)
            with self.assertRaisesRegex(AssertionError, "If capturable=True"):
                optimizer.step()
            run(make(params(), capturable=True, fused=True), 0)
        with self.assertRaisesRegex(ValueError, "Nesterov momentum requires"):
            swamp_torch.SGD(params(), nesterov=True)

    def test_nothing_is_written_if_refused(self):
        optimizer = run(swamp_torch.AdamW(params()), 0)
        before = tensors(optimizer)
        give_grads(optimizer, 3)
        state = optimizer.state[all_params(optimizer)[3]]
        moment = state["exp_avg"]
        state["exp_avg"] = moment.new_zeros(3)
        with self.assertRaisesRegex(RuntimeError, r"exp_avgs\[3\]: got the shape"):
            optimizer.step()
        state["exp_avg"] = moment
        self.assert_same(tensors(optimizer), before)


if __name__ == "__main__":
    main()
