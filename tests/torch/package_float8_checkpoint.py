"""Layers of swamp_torch.float8 under torch.utils.checkpoint: the bits of a run without
it, also with recipes that have a state or round at random."""

import functools
import gc

from package_float8 import RECIPES, config_of
from package_float8_golden import E4M3
from support import TestCase, a_fifth, caught, in_threads, main

import torch
import torch.utils.checkpoint

from swamp_torch import float8

# Of inputs and weights, which a repeated forward pass rounds again.
def stochastic(scaling="te_mxfp8", **others):
    def cast(rounding):
        return float8.CastConfig(
            float8.ScalingType.DYNAMIC, float8.ScalingGranularity.BLOCKWISE,
            E4M3, scaling, rounding=rounding)
    return float8.Float8LinearConfig(
        cast_config_input=cast("stochastic"), cast_config_weight=cast("stochastic"),
        cast_config_grad_output=cast("nearest_even"), **others)


# Those with a state, and the others, whose gradients may be rounded at random.
STATEFUL = [config_of("te_delayed_hybrid", {"amax_history_len": 2}), stochastic()]
STATELESS = [config_of(name, options) for name, options, _ in RECIPES
             if name != "te_delayed_hybrid"]

# use_reentrant of a checkpoint around the model, and around its blocks; None: no
# checkpoint. The first is what all others must equal.
CHECKPOINTS = [(outer, inner) for outer in (None, False, True)
               for inner in (None, False, True)]


class Checkpointed(torch.nn.Module):
    """Two blocks; the first is used three times, twice with one input."""

    def __init__(self, config, uses, preserve=True):
        super().__init__()
        torch.manual_seed(0)
        self.uses, self.preserve = uses, preserve
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(),
                                torch.nn.Linear(64, 32)) for _ in range(2))
        float8.convert_to_float8_training(self, config=config)

    def call(self, use, function, x):
        if callable(use):
            return use(function, x)
        return function(x) if use is None else torch.utils.checkpoint.checkpoint(
            function, x, use_reentrant=use, preserve_rng_state=self.preserve)

    def forward(self, x):
        first, second = self.blocks
        x = self.call(self.uses[1], first, x)
        x = self.call(self.uses[1], lambda t: t + (first(t) - 0.5 * first(t)), x)
        return self.call(self.uses[1], second, x)

    def run(self, x):
        return self.call(self.uses[0], self, x)


def one_by_one(model, inputs):
    for x in inputs:
        model.zero_grad()
        model.run(x).square().sum().backward()


def sum_of_two(model, inputs):
    for x in inputs:
        (model.run(x) + model.run(x)).square().sum().backward()


def alternating(model, inputs):
    """One layer with two inputs in turn, in one checkpoint."""
    layer = model.blocks[0]
    for x in inputs:
        model.zero_grad()
        float8.update_scales(model)
        model.call(model.uses[0], lambda t: layer(t) * layer(2 * t) * layer(t)
                   + 0.5 * layer(2 * t), x).square().sum().backward()


def with_a_plain_pass(model, inputs):
    """A plain pass between a pass that a checkpoint repeats and the backward pass."""
    for x in inputs:
        loss = model.run(x).square().sum()
        (loss + model(3 * x).square().sum()).backward()


def first_in_first_out(model, inputs):
    losses = [model.run(x).square().sum() for x in [*inputs, inputs[0]]]
    for loss in losses:
        loss.backward()


def twice_backward(model, inputs):
    loss = model.run(inputs[0]).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    one_by_one(model, inputs[1:])


def a_pass_between(model, inputs):
    loss = model.run(inputs[0]).square().sum()
    loss.backward(retain_graph=True)
    model.run(inputs[1])
    loss.backward()


def on_another_thread(model, inputs):
    for forward, backward in ((True, False), (False, True)):
        losses = []

        def call():
            losses.extend(model.run(x).square().sum() for x in inputs * 2)

        in_threads(lambda _: call(), 1) if forward else call()
        model.run(inputs[1])
        one_after_another = lambda _: [loss.backward() for loss in losses]
        in_threads(one_after_another, 1) if backward else one_after_another(0)


def with_lost_passes(model, inputs):
    """A forward pass without a backward pass, and one that fails."""
    one_by_one(model, inputs[:1])
    model.run(inputs[1])
    handle = model.blocks[1].register_forward_hook(lambda *_: 1 / 0)
    try:
        model.run(inputs[0])
    except ZeroDivisionError:
        handle.remove()
    one_by_one(model, inputs[1:])


SCHEDULES = [one_by_one, sum_of_two, alternating, with_a_plain_pass,
             first_in_first_out, twice_backward, a_pass_between, on_another_thread,
             with_lost_passes]


class Recomputation(TestCase):
    def outcome(self, config, schedule, uses, preserve=True):
        model = Checkpointed(config, uses, preserve)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        seen = []
        for step in range(2 if schedule is one_by_one else 1):
            generator = torch.Generator().manual_seed(step)
            inputs = [(torch.randn(16, 32, generator=generator) * 2.0 ** i
                       ).requires_grad_() for i in range(2)]
            optimizer.zero_grad()
            schedule(model, inputs)
            optimizer.step()
            seen += [x.grad for x in inputs if x.grad is not None]
            seen += [p.grad.clone() for p in model.parameters()
                     if p.grad is not None]
        return seen + list(model.state_dict().values())

    def test_bits(self):
        """A checkpoint changes no bit, with every recipe."""
        for number, config in enumerate([*STATEFUL, *STATELESS]):
            has_state = config in STATEFUL
            for schedule in SCHEDULES if has_state else SCHEDULES[:1]:
                plain = self.outcome(config, schedule, (None, None))
                # 8 checkpoints and 9 schedules: a fifth has each of them.
                for uses in (a_fifth(CHECKPOINTS[1:], SCHEDULES.index(schedule))
                             if has_state else [(False, True)]):
                    found = self.outcome(config, schedule, uses, number % 2 == 0)
                    what = (number, schedule, uses)
                    if True not in uses or schedule is one_by_one:
                        self.assert_same(found, plain, what)
                        continue
                    # Reentrant checkpoints add the gradients of a parameter in
                    # another order; other random bits make 0.05.
                    for a, b in zip(found, plain, strict=True):
                        self.assertLessEqual((a - b).double().norm(),
                                             2e-3 * b.double().norm(), what)

    def test_nothing_stays(self):
        """What is kept is freed with the graph."""
        gc.collect()
        before = len(float8.recompute._passes)
        for uses in CHECKPOINTS:
            model = Checkpointed(stochastic(), uses)
            inputs = [torch.randn(16, 32, requires_grad=True) for _ in range(2)]
            for schedule in (a_pass_between, with_lost_passes):
                schedule(model, inputs)
            gc.collect()
            self.assertEqual(len(float8.recompute._passes), before, uses)

    def test_many(self):
        """Any number of passes before a backward pass."""
        found = []
        for use in (None, False, True):
            layer = float8.convert_to_float8_training(
                torch.nn.Linear(16, 16, bias=False), config=stochastic())
            torch.nn.init.eye_(layer.weight)
            x = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)
                            ).requires_grad_()
            outputs = [layer(x) if use is None else torch.utils.checkpoint.checkpoint(
                layer, x, use_reentrant=use)
                for _ in range(1 if use is None else 1100)]
            outputs[0].square().sum().backward()
            found.append((x.grad, layer.weight.grad))
        self.assert_same(found[1], found[0])
        self.assert_same(found[2], found[0])

    def test_selective(self):
        """Policies that save, or repeat, each operator."""
        checkpoint = torch.utils.checkpoint
        ops, policy = torch.ops, checkpoint.CheckpointPolicy
        for config in [*STATEFUL, config_of("nvfp4", {})]:
            plain = self.outcome(config, one_by_one, (None, None))
            for chosen in (lambda *_, **__: policy.MUST_SAVE,
                           lambda *_, **__: policy.PREFER_RECOMPUTE,
                           [ops.swamp._scaled_product.default],
                           [ops.aten.select.int, ops.aten.add.Tensor],
                           [ops.swamp._begin_pass.default]):
                contexts = functools.partial(
                    checkpoint.create_selective_checkpoint_contexts, chosen)
                found = self.outcome(
                    config, one_by_one, (functools.partial(
                        checkpoint.checkpoint, use_reentrant=False,
                        context_fn=contexts), None))
                self.assert_same(found, plain, chosen)

    def test_compiled(self):
        """Checkpoints around compiled functions; in them, an error."""
        for config, outer in ((STATEFUL[1], False),
                              (STATEFUL[0], None)):  # a compiled hook
            torch._dynamo.reset()

            def run(function, x):
                compiled = torch.compile(function, backend="aot_eager")
                return compiled(x) if outer is None else (
                    torch.utils.checkpoint.checkpoint(compiled, x,
                                                      use_reentrant=outer))

            found = self.outcome(config, one_by_one, (run, None))
            plain = self.outcome(config, one_by_one, (None, None))
            for a, b in zip(found, plain, strict=True):
                # Gradients of a shared layer are added in another order.
                self.assertLessEqual((a - b).double().norm(),
                                     1e-5 * b.double().norm(), outer)
        for config, inner in ((STATEFUL[0], False), (STATEFUL[1], True)):
            layer = float8.convert_to_float8_training(torch.nn.Linear(16, 16),
                                                      config=config)
            call = torch.compile(lambda x: torch.utils.checkpoint.checkpoint(
                layer, x, use_reentrant=inner).square(), backend="aot_eager")
            found = caught(lambda: call(
                torch.ones(16, 16, requires_grad=True)).sum().backward())
            self.assertEqual(found[0], "RuntimeError", inner)
            self.assertIn("got a checkpoint in a function that torch.compile compiles",
                          found[1])

    def test_unmatched(self):
        """A repetition that differs from its first run is an error."""
        for use in (False, True):
            layer = float8.convert_to_float8_training(torch.nn.Linear(16, 16),
                                                      config=stochastic())
            times = iter((1, 2))

            def function(x):
                for _ in range(next(times)):
                    x = layer(x)
                return x.square()

            def call(hook=None):
                x = torch.ones(16, 16, requires_grad=True)
                y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=use,
                                                      early_stop=False)
                if hook is not None:
                    y = 2 * y  # a node outside of the checkpoint
                    y.register_hook(hook)
                y.sum().backward()

            @torch.enable_grad()
            def in_a_hook(_):
                layer(torch.ones(16, 16))

            for again, text in (
                    (call, "(root): got 2 forward passes in the repetition of a "
                     "checkpoint, expected 1"),
                    (lambda: call(in_a_hook),
                     "(root): got a forward pass during a backward pass")):
                times = iter((1, 2))
                found = caught(again)
                self.assertEqual(found[0], "RuntimeError")
                self.assertIn(text, found[1])


if __name__ == "__main__":
    main()
