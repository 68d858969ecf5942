"""The state of swamp_torch.AdamW: saved, loaded, copied, pickled."""

import copy
import math
import pickle
import warnings
from functools import partial

import optimizers
from optimizers import CASES, all_params, tensors
from support import TestCase, main

import torch

import swamp_torch
from swamp_torch import Adam, AdamW

SHAPES = [(64,), (128, 64), (192,)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def params():
    return optimizers.params(SHAPES, DTYPES)


def run(optimizer, first, count=3):
    return all_params(optimizers.run(optimizer, first, count))


def make(some, **options):
    return AdamW([{"params": some[:2]},
                  {"params": some[2:], "lr": 5e-3}],
                 lr=1e-2, weight_decay=0.1, **options)


class State(TestCase):
    def equal(self, a, b):
        self.assert_same(tensors(a), tensors(b))

    def loaded(self, optimizer, state_dict):
        some = params()
        with torch.no_grad():
            for p, q in zip(some, all_params(optimizer)):
                p.copy_(q)
        result = make(some)
        result.load_state_dict(state_dict)
        for state in result.state.values():
            self.assertIs(state["exp_avg"].dtype, torch.float32)
        return result

    def test_one_call_for_what_steps_together(self):
        """Also after loading; each parameter has a count of its own."""
        some = [torch.nn.Parameter(torch.ones(64)) for _ in range(9)]
        other = torch.optim.AdamW(some, fused=True)
        run(other, 0, 2)
        ours = AdamW(some)
        ours.load_state_dict(other.state_dict())
        run(ours, 2, 1)
        self.assertEqual(len(ours._collected.buckets), 1)
        self.assertEqual(
            len({state["step"].data_ptr() for state in ours.state.values()}), 9)

    def test_count_of_any_dtype(self):
        """Set by hand; also another for each parameter."""
        makes = {
            "int": int, "float": float, "one element": lambda v: torch.tensor([v]),
            "negated": lambda v: torch._neg_view(torch.tensor(-v)),
            "zero": lambda v: torch._efficientzerotensor((), dtype=torch.float32)
            if v == 0 else torch.tensor(v),
            **{dtype: lambda v, dtype=dtype: torch.tensor(v, dtype=dtype)
               for dtype in (torch.float64, torch.float16, torch.bfloat16,
                             torch.int64, torch.int32, torch.uint8)}}
        for make_one in (AdamW, Adam, partial(AdamW, master_weights=False)):
            for kind, count in makes.items():
                for value in (0.0, 255.0):  # 257 is no bfloat16
                    results = []
                    for cast in (torch.tensor, count):
                        optimizer = make_one(params())
                        run(optimizer, 0, 1)
                        first, second, _ = all_params(optimizer)
                        optimizer.state[first]["step"] = cast(value)
                        run(optimizer, 1, 2)
                        optimizer.state[second]["step"] = cast(value)
                        run(optimizer, 3, 1)
                        self.assertEqual(optimizer.state[first]["step"], value + 3)
                        results.append([t.flatten() for t in tensors(optimizer)])
                    with self.subTest(kind):
                        self.assert_same(*results)
            for bad in (2.5, -1, math.nan, torch.tensor(-1), torch.tensor(0.5).double(),
                        torch.ones(2), None, torch.tensor(1j)):
                optimizer = make_one(params())
                run(optimizer, 0, 1)
                before = tensors(optimizer)
                optimizer.state[all_params(optimizer)[1]]["step"] = bad
                with self.assertRaisesRegex(ValueError, r"step'\]: got .*, expected a"):
                    run(optimizer, 1, 1)
                optimizer.state[all_params(optimizer)[1]]["step"] = torch.tensor(1.0)
                self.assert_same(tensors(optimizer), before)

    def test_shared_counts_of_earlier_versions(self):
        optimizer = make(params())
        some = run(optimizer, 0)
        for p in some:
            optimizer.state[p]["step"] = optimizer.state[some[0]]["step"]
        for copied in (copy.deepcopy(optimizer),
                       pickle.loads(pickle.dumps(optimizer))):
            steps = [state["step"] for state in copied.state.values()]
            self.assertEqual(len({t.data_ptr() for t in steps}), len(SHAPES))
            run(copied, 3)
            self.assertEqual(list(map(float, steps)), [6.0] * len(SHAPES))

    def test_what_users_add_to_the_state(self):
        """It is saved and loaded as it is, as by torch.optim."""
        own = {"count": 3, "name": None, "table": torch.arange(4)}
        for name, options in CASES:
            make_one = partial(getattr(swamp_torch, name), **options)
            optimizer = make_one(params()[:1])
            run(optimizer, 0)

            def add(optimizer):
                optimizer.state.update(mine=own, number=7, tensor=own["table"])

            optimizer.register_state_dict_pre_hook(add)
            saved = optimizer.state_dict()
            other = make_one(params()[:1])
            other.load_state_dict(saved)
            for one in (optimizer, other, copy.deepcopy(other)):
                self.assertEqual(one.state["number"], 7)
                self.assertEqual(one.state["mine"]["count"], 3)
                for table in (one.state["mine"]["table"], one.state["tensor"]):
                    self.assert_same(table, own["table"])
            run(other, 3)

    def test_refused(self):
        some = params()[:1]
        ours = AdamW(some)
        run(ours, 0)
        before = tensors(ours)
        for step in (1e30, 2.0 ** 53, -1.0, 0.5, math.nan, 10 ** 400, None,
                     torch.ones(2)):
            state = ours.state_dict()
            state["state"][0]["step"] = step
            with self.assertRaisesRegex(ValueError, r"state\[0\]\['step'\]: got "):
                ours.load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "number of parameter groups"):
            ours.load_state_dict(make(params()).state_dict())
        self.assert_same(tensors(ours), before)
        run(ours, 3)

    def test_users_hooks_see_tensors(self):
        optimizer = make(params())
        run(optimizer, 0)
        seen = []
        optimizer.register_load_state_dict_pre_hook(
            lambda _, d: seen.append(type(d["state"][0]["exp_avg"])))
        optimizer.register_load_state_dict_post_hook(
            lambda o: seen.append(type(next(iter(o.state.values()))["exp_avg"])))
        optimizer.load_state_dict(optimizer.state_dict())
        self.assertEqual(seen, [torch.Tensor] * 2)

    def test_reload_model_params(self):
        optimizer = make(params())
        some = run(optimizer, 0)
        with torch.no_grad():
            for p in some:
                p.fill_(2.5)
        optimizer.reload_model_params()
        for p in some[1:]:
            self.assertTrue((optimizer.state[p]["master_param"] == 2.5).all())
            self.assertEqual(optimizer.state[p]["step"], 3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(optimizer, 3)

    def written_by_others(self, write, *, noticed=True):
        """The next step equals that of an optimizer that begins with the written
        weights and the same moments."""
        ours = make(params())
        some = run(ours, 0)
        write(ours, some)
        state = ours.state_dict()
        for index, p in enumerate(some):
            master = state["state"][index].get("master_param")
            if master is not None:
                state["state"][index]["master_param"] = torch.where(
                    p == master.to(p.dtype), master, p.detach().float())
        expected = self.loaded(ours, state)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for first in (3, 4):
                run(ours, first, 1)
                run(expected, first, 1)
        self.equal(ours, expected)
        self.assertEqual(len(caught), 1 if noticed else 0, caught)
        for warning in caught:
            self.assertRegex(str(warning.message), r"^param_groups\[0\]\['params'"
                             r"\]\[1\]: was written since the last step")
            self.assertEqual(warning.filename, optimizers.__file__)

    def test_written_by_others(self):
        def load(_, some):
            module = torch.nn.ParameterList(some)
            module.load_state_dict({str(i): torch.full(p.shape, i + 2.5)
                                    for i, p in enumerate(some)})

        def merge(_, some):
            with torch.no_grad():
                for p in some:
                    p += 1

        def replace(_, some):
            for p in some:
                p.data = torch.full(p.shape, 3.0).to(p.dtype)

        def one_element(_, some):
            with torch.no_grad():
                some[1][7, 3] = 10.0

        for write in (load, merge, replace, one_element):
            self.written_by_others(write)

    def test_written_and_restored(self):
        """The masters do not change, and there is no warning."""
        def swap(_, some):
            saved = [p.detach().clone() for p in some]
            with torch.no_grad():
                for p, q in zip(some, saved):
                    p.zero_()
                    p.copy_(q)

        self.written_by_others(swap, noticed=False)

    def test_written_before_a_load(self):
        """Weights that were loaded without their optimizer state, or with that of
        another."""
        first = make(params())
        run(first, 0)
        ours = make(params())
        with torch.no_grad():
            for group in ours.param_groups:
                for p in group["params"]:
                    p.fill_(4.0)
        ours.load_state_dict(first.state_dict())
        for group in ours.param_groups:
            group.update(lr=0.0, weight_decay=0.0)
        with self.assertWarnsRegex(UserWarning, "takes the new value"):
            some = run(ours, 3, 1)
        for p in some:
            self.assertTrue((p == 4.0).all())


if __name__ == "__main__":
    main()
