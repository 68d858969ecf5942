"""PyTorch's own optimizer tests on swamp_torch's classes: the inputs, error inputs and
schedules of torch.testing._internal.common_optimizers, which is part of the installed
PyTorch, with the checks of its test_optim.py that apply to a CPU. Needs expecttest.
"""

import copy
import sys
import warnings

from support import TestCase, main

import torch

import swamp_torch

try:
    from torch.testing._internal.common_optimizers import (OptimizerErrorEnum,
                                                           optim_db)
except ImportError as error:
    print(f"skipped: PyTorch's optimizer tests need a package: {error}")
    sys.exit(77)

INFOS = {info.optim_cls.__name__: info for info in optim_db
         if info.optim_cls.__name__ in ("Adam", "AdamW", "SGD")}

# A parameter twice in a group would be stepped twice with one step count. PyTorch warns
# that it will be an error; swamp_torch raises it.
TWICE = "a parameter group with duplicate parameters"


def make(name, some, **options):
    return getattr(swamp_torch, name)(some, **options)


class Suite(TestCase):
    def for_all(self, check, **impl):
        """Calls check(name, options) for every class and its inputs."""
        for name, info in INFOS.items():
            for one in info.optim_inputs_func(device="cpu"):
                with self.subTest(name=name, desc=one.desc):
                    check(name, copy.deepcopy({**one.kwargs, **impl}))

    def close(self, a, b):
        torch.testing.assert_close(a, b)

    def test_right_direction(self):
        """As test_forloop_goes_right_direction, and with fused and foreach."""
        def check(name, options):
            for dtype in (torch.float32, torch.float64, torch.bfloat16,
                          torch.complex64):
                for contiguous in (True, False):
                    torch.manual_seed(0)
                    weight = torch.randn(10, 5 if contiguous else 10)
                    weight = weight.to(dtype) if contiguous else (
                        weight.to(dtype)[:, ::2])
                    weight = torch.nn.Parameter(weight)
                    bias = torch.nn.Parameter(torch.randn(10).to(dtype))
                    x = torch.randn(5).to(dtype)
                    optimizer = make(name, [weight, bias], **options)

                    def closure():
                        optimizer.zero_grad()
                        loss = (weight.mv(x) + bias).abs().pow(2).sum()
                        loss.backward()
                        return loss
                    before = closure().item()
                    for _ in range(20):
                        after = optimizer.step(closure).item()
                    if options.get("maximize"):
                        self.assertGreater(after, before)
                    else:
                        self.assertLess(after, before)
        for how in ({}, dict(foreach=True)):
            self.for_all(lambda name, options: check(
                name, {**options, "lr": options.get("lr", 1e-3)}
                if not isinstance(options.get("lr"), torch.Tensor)
                else options), **how)

    def test_as_pytorchs(self):
        """As test_fused_matches_forloop, test_set_default_dtype, test_complex,
        test_complex_2d and, for odd sizes, test_peak_memory. The last parameter has no
        gradient."""
        shapes = ((13, 10), (13,), (), (1,), (0, 3), (3, 5, 1), (2,))

        def check(name, options, dtype):
            made = []
            for cls in (getattr(swamp_torch, name), INFOS[name].optim_cls):
                torch.manual_seed(1)
                some = [torch.nn.Parameter(torch.randn(s, dtype=dtype)) for s in shapes]
                optimizer = cls(some, **copy.deepcopy(options))
                for _ in range(7):
                    for p in some[:-1]:
                        p.grad = torch.randn_like(p)
                    optimizer.step()
                made.append((some, optimizer))
            (ours, a), (theirs, b) = made
            for p, q in zip(ours, theirs):
                self.close(p, q)
                self.assertEqual(set(a.state.get(p, {})), set(b.state.get(q, {})))
                for key, value in b.state.get(q, {}).items():
                    self.close(a.state[p][key], value)

        for dtype in (torch.float32, torch.float64, torch.complex64):
            for how in ({},) if dtype.is_complex else ({}, dict(fused=True)):
                self.for_all(lambda name, options: check(name, options, dtype), **how)

    def test_errors(self):
        for name, info in INFOS.items():
            for one in info.optim_error_inputs_func("cpu", torch.float32):
                given = one.optimizer_error_input
                words = "got params[0] again" if TWICE in one.error_regex else None
                some = given.params
                if some is None:
                    some = [torch.nn.Parameter(torch.ones(3))]
                self.assertIs(one.error_on, OptimizerErrorEnum.CONSTRUCTION_ERROR)
                with self.subTest(name=name, regex=one.error_regex):
                    if issubclass(one.error_type, Warning) or words:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            with self.assertRaises(ValueError) as caught:
                                make(name, some, **given.kwargs)
                        self.assertIn(words, str(caught.exception))
                    else:
                        with self.assertRaisesRegex(one.error_type,
                                                    one.error_regex):
                            make(name, some, **given.kwargs)

    def test_state_dict(self):
        """As test_state_dict_deterministic, test_can_load_older_state_dict,
        test_save_load_equality_with_weights_only, test_deepcopy_optimizers and
        test_load_nontensor_step."""
        def check(name, options):
            torch.manual_seed(3)
            p = torch.nn.Parameter(torch.randn(64))

            def steps(param, optimizer, first):
                for step in range(first, first + 3):
                    torch.manual_seed(step)
                    param.grad = torch.randn(64)
                    optimizer.step()
                return param
            optimizer = make(name, [p], **options)
            steps(p, optimizer, 0)
            saved = copy.deepcopy(optimizer.state_dict())
            older = copy.deepcopy(saved)
            for key in ("maximize", "foreach", "fused", "differentiable",
                        "capturable", "max_norm"):
                if not options.get(key):
                    older["param_groups"][0].pop(key, None)
            plain = copy.deepcopy(saved)
            for state in plain["state"].values():
                if "step" in state:
                    state["step"] = state["step"].item()
            made = []
            for state in (saved, older, plain):
                q = torch.nn.Parameter(p.detach().clone())
                other = make(name, [q], **options)
                other.load_state_dict(state)
                made.append(steps(q, other, 3))
            copied = copy.deepcopy(optimizer)
            made.append(steps(copied.param_groups[0]["params"][0], copied, 3))
            steps(p, optimizer, 3)
            for q in made:
                self.assert_same(q, p)
        self.for_all(check)

    def test_hooks(self):
        """As the tests of state dict, step and global step hooks."""
        def check(name, options):
            p = torch.nn.Parameter(torch.ones(3))
            optimizer = make(name, [p], **options)
            calls = []
            optimizer.register_state_dict_pre_hook(
                lambda o: calls.append("state pre"))
            optimizer.register_state_dict_post_hook(
                lambda o, d: calls.append("state post"))
            optimizer.register_load_state_dict_pre_hook(
                lambda o, d: calls.append("load pre"))
            optimizer.register_load_state_dict_post_hook(
                lambda o: calls.append("load post"))
            optimizer.load_state_dict(optimizer.state_dict())
            self.assertEqual(calls, ["state pre", "state post", "load pre",
                                     "load post"])
        self.for_all(check)

    def test_meta(self):
        """Parameters without memory are PyTorch's, as those of other devices."""
        def check(name, options):
            p = torch.nn.Parameter(torch.ones(3, device="meta"))
            p.grad = torch.ones(3, device="meta")
            optimizer = make(name, [p], **options)
            optimizer.step()
            self.assertEqual(p.device.type, "meta")
        self.for_all(check)


if __name__ == "__main__":
    main()
