"""swamp_torch.moe: literal examples, PyTorch's gradients of the formulas, and, with
support.has_megatron(), Megatron-LM's own functions, token by token.
"""

import io
import json
import math
import os
import struct
import unittest
import warnings

from support import NO_MEGATRON, TestCase, has_megatron, main, on_threads
from half_precision import EPS, randn

import torch

from swamp_torch import moe

ops = torch.ops.swamp
theirs = None
if has_megatron():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of apex and TransformerEngine, missing
        from megatron.core.transformer.moe import moe_utils as theirs
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
EPS = {**EPS, torch.float32: 2.0 ** -23}


def routed(tokens, experts, topk, dtype=torch.float32, seed=0):
    return moe.route(randn(tokens, experts, dtype=dtype, seed=seed), topk,
                     pre_softmax=True)


class Literal(TestCase):
    def test_histogram(self):
        index = torch.tensor([[0, 2], [2, 1], [2, -1], [0, 2]])
        for dtype in (torch.int32, torch.int64):
            counts = moe.histogram(index.to(dtype), 4)
            self.assertEqual(counts.tolist(), [2, 1, 4, 0])
            self.assertEqual(counts.dtype, torch.int64)
            counts = moe.histogram(index.to(dtype), 4, mode="mindformers")
            self.assertEqual(counts.tolist(), [1, 1, 3, 0])
        routing_map = torch.tensor([[1, 0, 1], [0, 0, 1]]).bool()
        self.assertEqual(moe.histogram(routing_map).tolist(), [1, 0, 2])
        self.assertEqual(moe.histogram(routing_map, mode="mindformers").tolist(),
                         [1, 0, 1])

    def test_positions(self):
        index = torch.tensor([[0, 1], [0, 2], [1, 0], [0, 1]])
        self.assertEqual(moe.positions(index, 3).tolist(),
                         [[0, 0], [1, 0], [1, 2], [3, 2]])
        self.assertEqual(moe.positions(index, 3, 2).tolist(),
                         [[0, 0], [1, 0], [1, -1], [-1, -1]])
        # All first choices, then the second ones.
        self.assertEqual(moe.positions(index, 3, 3, order="choice").tolist(),
                         [[0, 1], [1, 0], [0, -1], [2, 2]])
        # MindFormers' TopkRouterV2: from 1, 0 for dropped tokens.
        self.assertEqual((moe.positions(index, 3, 2) + 1).tolist(),
                         [[1, 1], [2, 1], [2, 0], [0, 0]])

    def test_capacity(self):
        self.assertEqual(moe.capacity(10, 2, 8, 1.0), 3)
        self.assertEqual(moe.capacity(10, 2, 8, 1.25), 4)
        self.assertEqual(moe.capacity(10, 2, 8, 1.0, min_capacity=5), 5)
        self.assertEqual(moe.mindformers_capacity(10, 2, 8, 1.1), 3)
        with self.assertRaisesRegex(ValueError, "but got 0.5."):
            moe.mindformers_capacity(10, 2, 8, 0.5)
        probs = torch.tensor([[.5, 0], [.5, 0], [.75, .25], [0, .25]])
        routing_map = probs > 0
        for policy, limit, pad, expected in (
                ("probs", 2, False, [[1, 0], [0, 0], [1, 1], [0, 1]]),
                ("position", 2, False, [[1, 0], [1, 0], [0, 1], [0, 1]]),
                ("probs", 3, True, [[1, 1], [1, 0], [1, 1], [0, 1]]),
                ("position", 3, True, [[1, 1], [1, 0], [1, 1], [0, 1]])):
            got, kept = moe.apply_capacity(probs, routing_map, limit,
                                           drop_policy=policy, pad_to_capacity=pad)
            self.assertEqual(kept.int().tolist(), expected)
            self.assertTrue(torch.equal(got, probs * kept))

    def test_permute(self):
        tokens = torch.tensor([[1., 2.], [3., 4.], [5., 6.]])
        probs = torch.tensor([[0, .5, .5], [1, 0, 0], [.25, 0, .75]])
        permuted, chosen, indices = moe.permute(tokens, probs > 0, probs)
        self.assertEqual(indices.tolist(), [1, 2, 0, 0, 2])
        self.assertEqual(permuted.tolist(),
                         [[3, 4], [5, 6], [1, 2], [1, 2], [5, 6]])
        self.assertEqual(chosen.tolist(), [1, .25, .5, .5, .75])
        back = moe.unpermute(permuted, indices, tokens.shape, probs, probs > 0)
        self.assertTrue(torch.equal(back, tokens))
        self.assertEqual(moe.unpermute(permuted, indices, tokens.shape).tolist(),
                         [[2, 4], [3, 4], [10, 12]])
        # An expert of two rows that has one token.
        permuted, chosen, indices = moe.permute(
            tokens, probs > 0, probs, num_out_tokens=6, drop_and_pad=True)
        self.assertEqual(indices.tolist(), [1, 2, 0, -1, 0, 2])
        self.assertEqual(permuted[3].tolist(), [0, 0])
        self.assertEqual(chosen.tolist(), [1, .25, .5, 0, .5, .75])
        # Entry 0 is not that of the row without a token.
        probs[0, 0] = torch.inf
        probs.requires_grad_()
        _, chosen, _ = moe.permute(tokens, torch.tensor([[0, 1], [0, 0], [0, 0]])
                                   .bool(), probs[:, :2], 4, drop_and_pad=True)
        self.assertEqual(chosen.tolist(), [0, 0, .5, 0])
        chosen.sum().backward()
        self.assertEqual(probs.grad.tolist(), [[0, 1, 0], [0] * 3, [0] * 3])

    def test_route(self):
        logits = torch.tensor([[1., 1., 1., 0.], [0., 2., 1., 2.]])
        for pre in (False, True):
            probs, routing_map = moe.route(logits, 2, pre_softmax=pre)
            # Of equal scores the lowest expert.
            self.assertEqual(routing_map.int().tolist(),
                             [[1, 1, 0, 0], [0, 1, 0, 1]])
            self.assertTrue(torch.equal(probs > 0, routing_map))
        bias = torch.tensor([0., 0., 1., 1.])
        _, routing_map = moe.route(logits, 2, score_function="sigmoid",
                                   expert_bias=bias)
        self.assertEqual(routing_map.int().tolist(),
                         [[0, 0, 1, 1], [0, 0, 1, 1]])
        counts = torch.tensor([1, 3, 2, 2])
        self.assertEqual(
            moe.updated_expert_bias(counts, bias, 0.5).tolist(),
            [.5, -.5, 1, 1])

    def test_groups(self):
        # A highest sum, and equal ones, of which the lowest group is taken.
        logits = torch.tensor([[3., 0., 2., 2., 2., 1.], [5., 0., 4., 3., 4., 3.],
                               [9., 0., 1., 1., 0., 3.]])
        for topk, groups, expected in ((2, 1, [[2, 3], [2, 3], [0, 1]]),
                                       (2, 2, [[0, 2], [0, 2], [0, 5]]),
                                       (3, 2, [[0, 2, 3], [0, 2, 3], [0, 1, 5]])):
            _, routing_map = moe.route(logits, topk, num_groups=3,
                                       group_topk=groups)
            self.assertEqual(routing_map.nonzero()[:, 1].view(3, -1).tolist(),
                             expected, (topk, groups))

    def test_square_root_of_softplus(self):
        logits = torch.tensor([[0., 30., -2.]])
        probs, _ = moe.route(logits, 3, score_function="sqrtsoftplus")
        scores = [math.log(2) ** .5, 30 ** .5, math.log1p(math.exp(-2)) ** .5]
        for got, score in zip(probs[0].tolist(), scores):
            self.assertAlmostEqual(got, score / sum(scores), places=6)
        # The bias is for the choice alone.
        probs, _ = moe.route(logits, 1, score_function="sqrtsoftplus",
                             expert_bias=torch.tensor([9., 0., 0.]))
        self.assertAlmostEqual(probs[0, 0].item(), scores[0], places=6)

    def test_write_counts(self):
        file = io.StringIO()
        moe.write_counts(file, 3, 1, torch.tensor([4, 0]))
        moe.write_counts(file, 4, 1, torch.tensor([3, 1]), dropped=2)
        self.assertEqual([json.loads(x) for x in file.getvalue().splitlines()],
                         [{"step": 3, "layer": 1, "counts": [4, 0]},
                          {"step": 4, "layer": 1, "counts": [3, 1],
                           "dropped": 2}])


def first_router(logits, topk, capacity):
    """MindFormers' TopkRouter of one group, with its dense tensors: the weights
    [tokens, experts, capacity], the loss, and the counts it saves."""
    tokens, experts = logits.shape
    prob = logits.float().softmax(-1)
    mask_sum, before = torch.zeros(2, tokens, experts)
    combine, loss = torch.zeros(tokens, experts, capacity), 0
    for _ in range(topk):
        prob = prob * (1 - mask_sum)
        gate, index = prob.max(-1)
        chosen = mask = torch.nn.functional.one_hot(index, experts).float()
        normal = prob / (prob.sum(-1, keepdim=True) + 1e-9)
        loss = loss + (mask.mean(0) * normal.mean(0)).mean() * experts * experts
        at = mask.cumsum(0) - mask + before
        counts = at[-1]
        at = at * mask
        mask = (at < capacity) * mask
        gate = gate * mask.sum(-1)
        mask_sum = mask_sum + mask
        before = before + mask.sum(0, keepdim=True)
        slots = torch.nn.functional.one_hot(
            at.sum(-1).long().clamp(max=capacity), capacity + 1)[:, :capacity]
        combine = combine + ((gate * mask.sum(-1))[:, None] * chosen)[
            ..., None] * slots[:, None]
    return combine / (combine.sum((-2, -1), keepdim=True) + 1e-9), loss, counts


class Golden(TestCase):
    """Records of Megatron-LM's own functions: tests/golden/rows/record.py."""

    def test_routes(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "../golden/rows/moe.jsonl")
        with open(path) as file:
            records = [json.loads(line) for line in file][1:]
        routes = 0
        for record in records:
            tokens, experts, topk = (record[key] for key in
                                     ("tokens", "experts", "topk"))
            logits = torch.tensor(struct.unpack(
                f">{tokens * experts}f", bytes.fromhex(record["logits"]))
            ).view(tokens, experts)
            for arguments, expected in record["routes"]:
                named = dict(arguments)
                named["pre_softmax"] = named.pop("use_pre_softmax", False)
                if "expert_bias" in named:
                    named["expert_bias"] = torch.tensor(named["expert_bias"])
                _, routing_map = moe.route(logits, topk, **named)
                self.assertEqual(routing_map.nonzero()[:, 1].tolist(), expected,
                                 arguments)
                routes += 1
            for factor, least, expected in record["capacities"]:
                self.assertEqual(moe.capacity(tokens, topk, experts, factor, least),
                                 expected)
        self.assertEqual((len(records), routes), (4, 51))


class MindFormers(TestCase):
    """The formulas of MindFormers' routers and callbacks, in plain PyTorch."""

    def test_first_router(self):
        # Token 2 chooses expert 0, which is full, in both rounds.
        logits = torch.tensor([[.5, .3, .2], [.6, .1, .3], [.7, .2, .1]]).log()
        routes = moe.mindformers_route(logits, 2, 2)
        self.assertEqual(routes.expert_index.tolist(), [[0, 1], [0, 2], [0, 0]])
        self.assertEqual(routes.positions.tolist(), [[0, 0], [1, 0], [-1, -1]])
        self.assertEqual(routes.counts.tolist(), [2, 1, 1])
        for got, expected in zip(routes.weights.flatten().tolist(),
                                 (5 / 8, 3 / 8, 2 / 3, 1 / 3, 0, 0)):
            self.assertAlmostEqual(got, expected, places=6)
        # 3 * 1 * 0.6, and in the second round 3 * sum(1/3 * P_e).
        self.assertAlmostEqual(routes.aux_loss.item(), 1.8 + 1.0, places=6)

        for tokens, experts, topk, factor in (
                (40, 4, 2, 1.0), (100, 8, 3, 1.1), (7, 3, 1, 1.0), (60, 5, 5, 1.0),
                (1, 2, 2, 1.0), (90, 6, 2, 3.0)):
            limit = moe.mindformers_capacity(tokens, topk, experts, factor)
            logits = randn(tokens, experts)
            logits[:, 0] += 1  # some tokens are dropped
            logits.requires_grad_()
            routes = moe.mindformers_route(logits, topk, limit)
            weights, loss, counts = first_router(logits, topk, limit)
            kept = routes.positions >= 0
            token = torch.arange(tokens)[:, None].expand(-1, topk)[kept]
            place = (token, routes.expert_index[kept], routes.positions[kept].long())
            dispatched = torch.zeros_like(weights, dtype=torch.bool)
            dispatched[place] = True
            self.assertTrue(torch.equal(dispatched, weights != 0))
            self.assertLess((routes.weights[kept] - weights[place]).abs().max(), 1e-6)
            self.assertEqual(routes.weights[~kept].count_nonzero(), 0)
            self.assertLess(abs((routes.aux_loss - loss).item()), 1e-5)
            self.assertTrue(torch.equal(routes.counts, counts.long()))
            g = randn(*weights.shape)
            ours, = torch.autograd.grad((routes.weights[kept] * g[place]).sum()
                                        + 3 * routes.aux_loss, logits)
            exact, = torch.autograd.grad((weights * g).sum() + 3 * loss, logits)
            self.assertLess((ours - exact).abs().max().item(), 1e-5)

        empty = moe.mindformers_route(torch.ones(0, 3), 2, 1)
        self.assertEqual((empty.weights.shape, empty.aux_loss.item()), ((0, 2), 0))

    def test_cold_and_hot(self):
        limits = moe.cold_hot_capacity(4, torch.tensor([1, 3]), 5, 0.5)
        self.assertEqual(limits.tolist(), [2, 5, 2, 5])
        index = torch.tensor([[0, 1], [0, 1], [0, 1], [-1, 2]])
        limits = torch.tensor([2, -1, 0, 5])
        expected = [[0, 0], [1, 1], [-1, 2], [-1, -1]]
        for order in ("token", "choice"):
            self.assertEqual(moe.positions(index, 4, limits, order=order).tolist(),
                             expected)
        routing_map = torch.tensor([[1, 1], [1, 0], [1, 1]]).bool()
        self.assertEqual(
            moe.positions(routing_map, capacity=torch.tensor([2, 1])).tolist(),
            [[0, 0], [1, -1], [-1, -1]])

        self.assertEqual(moe.hot_experts(torch.tensor([3, 7, 7, 9]), 2).tolist(),
                         [1, 3])
        self.assertEqual(moe.hot_experts(torch.tensor([3, 7, 7, 9]), 0).tolist(), [])
        self.assertEqual([i for i in range(1, 45)
                          if moe.updates_hot_experts(i, 20, 11)],
                         [1, 2, 4, 8, 11, 16, 20, 40])
        self.assertFalse(moe.updates_hot_experts(1, 0))

    def test_expert_load(self):
        load = moe.ExpertLoad(4)
        load.update(torch.tensor([4, 0, 1, 3]))
        load.update(torch.tensor([0, 2, 1, 4]))
        self.assertEqual(load.mean.tolist(), [2, 1, 1, 3.5])
        # Devices 3 and 4.5, as numpy.std() has it.
        self.assertEqual(
            load.line(7, 2, 2, rank=1, ep=1),
            "[expert load] iter 7: rank 1 dp 0 pp 0 tp 0 ep 1, layer 2, load: min "
            "3.00, max 4.50, std 0.75, details [3, 4]")
        load = moe.ExpertLoad(1)
        for i in range(150):
            load.update(torch.tensor([101 * (i >= 100)]))
        self.assertEqual(load.steps, 100)
        self.assertAlmostEqual(load.mean.item(), 101 * (1 - (100 / 101) ** 50), 3)

    def test_second_router(self):
        """Inclusive sums from 1, and 0 for dropped tokens."""
        for order in ("choice", "token"):  # kdrop, sdrop
            index = routed(60, 5, 2)[0].argsort(
                dim=-1, descending=True, stable=True)[:, :2]
            flat = (index.t() if order == "choice" else index).reshape(-1)
            one_hot = torch.nn.functional.one_hot(flat, 5)
            at = (one_hot.cumsum(0) * one_hot).sum(-1)
            expected = at.where(at <= 20, 0)
            shape = (2, 60) if order == "choice" else (60, 2)
            expected = expected.view(shape)
            if order == "choice":
                expected = expected.t()
            got = moe.positions(index, 5, 20, order=order) + 1
            self.assertTrue(torch.equal(got.long(), expected))


def plain_unpermute(permuted, indices, tokens, factors):
    result = torch.zeros(tokens, permuted.size(1), dtype=permuted.dtype)
    return result.index_add(0, indices, permuted * factors.unsqueeze(-1))


class Gradients(TestCase):
    def assert_near(self, ours, exact, limit):
        self.assertEqual(ours.shape, exact.shape)
        error = (ours.double() - exact).abs().max().item()
        self.assertLessEqual(error, limit * (exact.abs().max().item() + 1e-30))

    def test_permutation(self):
        for dtype in DTYPES:
            for tokens, experts, topk, hidden in ((20, 4, 2, 33), (9, 8, 5, 4100)):
                probs, routing_map = routed(tokens, experts, topk)
                x = randn(tokens, hidden, dtype=dtype).requires_grad_()
                p = probs.clone().requires_grad_()
                permuted, chosen, indices = moe.permute(x, routing_map, p)
                y = moe.unpermute(permuted * 2, indices, x.shape, p, routing_map)
                g = randn(tokens, hidden, dtype=dtype, seed=1)
                ((y * g).sum() + chosen.square().sum()).backward()

                a = x.detach().double().requires_grad_()
                b = probs.double().requires_grad_()
                factors = b.t().masked_select(routing_map.t())
                z = plain_unpermute(a[indices] * 2, indices, tokens, factors)
                ((z * g.double()).sum() + factors.square().sum()).backward()
                limit = 4 * EPS[dtype]
                self.assertEqual(y.dtype, dtype)
                self.assert_near(y.detach(), z.detach(), limit)
                self.assert_near(x.grad, a.grad, limit)
                self.assert_near(p.grad, b.grad, limit)

    def test_losses(self):
        for dtype in DTYPES:
            for tokens, experts in ((33, 8), (2, 1), (300, 64)):
                logits = randn(tokens, experts, dtype=dtype).requires_grad_()
                counts = torch.arange(experts) * 3 + 1
                wide = logits.detach().double().requires_grad_()
                aux = moe.aux_loss(logits, counts, tokens, 2, 0.01)
                z = moe.z_loss(logits, 1e-3)
                exact_aux = (wide.sum(0) * counts).sum() * (
                    experts * 0.01 / (2 * tokens * tokens))
                exact_z = wide.logsumexp(-1).square().mean() * 1e-3
                size = (wide.detach().abs().sum(0) * counts).sum().item() * (
                    experts * 0.01 / (2 * tokens * tokens))
                self.assertEqual((aux.dtype, z.dtype), (torch.float32,) * 2)
                self.assertLess(abs(aux.item() - exact_aux.item()), 1e-6 * size)
                self.assertLess(abs(z.item() - exact_z.item()),
                                2e-6 * exact_z.item())
                (3 * aux + 5 * z).backward()
                (3 * exact_aux + 5 * exact_z).backward()
                self.assert_near(logits.grad, wide.grad, 4 * EPS[dtype] + 1e-5)

    def test_route(self):
        for function, pre, groups in (
                ("softmax", False, {}), ("softmax", True, {}), ("sigmoid", False, {}),
                ("sqrtsoftplus", False, {}),
                ("sqrtsoftplus", False, dict(num_groups=4, group_topk=2))):
            logits = randn(30, 8).requires_grad_()
            probs, routing_map = moe.route(logits, 3, score_function=function,
                                           pre_softmax=pre, scaling_factor=2.5,
                                           **groups)
            g = randn(30, 8, seed=1)
            (probs * g).sum().backward()
            wide = logits.detach().double().requires_grad_()
            if function != "softmax":
                scores = wide.sigmoid() if function == "sigmoid" else (
                    torch.nn.functional.softplus(wide).sqrt())
                scores = scores * routing_map
                exact = scores / scores.sum(-1, keepdim=True)
            elif pre:
                exact = wide.softmax(-1) * routing_map
            else:
                exact = wide.masked_fill(~routing_map, -torch.inf).softmax(-1)
            exact = exact * 2.5
            (exact * g).sum().backward()
            self.assert_near(probs.detach(), exact.detach(), 1e-6)
            self.assert_near(logits.grad, wide.grad, 2e-6)


class Operators(TestCase):
    def test_strides_and_threads(self):
        """The same bits for any strides and numbers of threads."""
        probs, routing_map = routed(5000, 16, 4)
        x = randn(5000, 64, dtype=torch.bfloat16)

        def results(copy=torch.clone):
            p, m = copy(probs), copy(routing_map)
            permuted, chosen, indices = moe.permute(copy(x), m, p)
            return [permuted, chosen, indices, moe.histogram(m),
                    moe.positions(m, capacity=100),
                    moe.unpermute(permuted, indices, x.shape, p, m),
                    moe.aux_loss(p, moe.histogram(m), 5000, 4, 0.1),
                    moe.z_loss(p, 0.1), *moe.apply_capacity(p, m, 900),
                    *moe.mindformers_route(p, 2, 500)]

        one, two = on_threads(results)
        self.assert_same(two, one)
        self.assert_same(results(lambda y: torch.stack([y] * 2, -1)[..., 1]), one)

    def test_errors(self):
        index = torch.tensor([[0, 3]])
        x = torch.ones(2, 3)
        routing_map = torch.ones(2, 3).bool()
        for call, error, text in (
                (lambda: moe.histogram(index, 3), RuntimeError,
                 r"choices.data\[1\]: got 3, expected an expert from 0 to 3 - 1"),
                (lambda: moe.histogram(index), ValueError,
                 "experts: got None, expected the number of experts"),
                (lambda: moe.histogram(index.float(), 3), RuntimeError,
                 "expert_index: got Float"),
                (lambda: ops.moe_histogram(routing_map, 4), RuntimeError,
                 r"expected \[tokens, 4\] for a map"),
                (lambda: moe.histogram(index, 4, mode="x"), ValueError,
                 "mode: got 'x', expected one of 'exact', 'mindformers'"),
                (lambda: moe.positions(index, 4, order="x"), ValueError,
                 "order: got 'x', expected one of 'token', 'choice'"),
                (lambda: moe.apply_capacity(x, routing_map, -1), RuntimeError,
                 "options.capacity: got -1, expected at least 0"),
                (lambda: moe.apply_capacity(x, routing_map[:1], 1), RuntimeError,
                 "routing_map: got the shape"),
                (lambda: moe.permute(x, routing_map, num_out_tokens=5),
                 RuntimeError, "rows: got 5, expected at least 6"),
                (lambda: ops.moe_permutation(
                    torch.tensor([1, 0]), torch.zeros(2).int(), 16, 4, 2 ** 60),
                 RuntimeError, "rows_per_expert: got 1152921504606846976, "
                 "expected at most 0, 4 rows / 16 experts"),
                (lambda: ops.moe_permute(x, torch.tensor([2])), RuntimeError,
                 r"token_of\[0\]: got 2, expected a token from 0 to 2 - 1"),
                (lambda: ops.moe_permute(x.double(), index[0]),
                 NotImplementedError, "not implemented for 'Double'"),
                (lambda: moe.positions(torch.ones(3, 3).bool(), order="choice"),
                 ValueError, "order: got 'choice' with a map, expected 'token'"),
                (lambda: moe.route(x[None], 1), ValueError,
                 r"logits: got the shape \(1, 2, 3\), expected \[tokens, exp"),
                (lambda: moe.route(x[0], 1), ValueError,
                 r"logits: got the shape \(3,\), expected \[tokens, experts\]"),
                (lambda: moe.route(x, 4), ValueError,
                 "topk: got 4, expected 1 to 3"),
                (lambda: moe.route(x, 1, score_function="x"), ValueError,
                 "score_function: got 'x', expected one of 'softmax', 'sigmoid', "),
                (lambda: moe.route(x, 1, num_groups=3), ValueError,
                 "num_groups, group_topk: got 3, None, expected both or neither"),
                (lambda: moe.route(x, 1, num_groups=2, group_topk=1), ValueError,
                 "num_groups: got 2, expected a divisor of 3"),
                (lambda: moe.route(x, 1, num_groups=3, group_topk=2), ValueError,
                 "group_topk: got 2, expected 1 to 1, the least of topk"),
                (lambda: moe.route(x, 2, num_groups=3, group_topk=1), ValueError,
                 "group_topk: got 1, expected .* at least 2 experts in as many "
                 "groups of 1"),
                (lambda: moe.mindformers_route(x, 0, 1), ValueError,
                 "topk: got 0, expected 1 to 3"),
                (lambda: moe.positions(index, 4, torch.ones(3)), ValueError,
                 r"capacity: got the shape \(3,\), expected \[4\]"),
                (lambda: moe.cold_hot_capacity(3, index[0, :1], 2, 0.0), ValueError,
                 "but got 0.0"),
                (lambda: moe.hot_experts(torch.ones(2), 3), ValueError,
                 "number: got 3, expected 0 to 2, the number of experts"),
                (lambda: moe.aux_loss(x, torch.ones(2), 2, 1, 1.0), RuntimeError,
                 "counts: got the shape")):
            with self.assertRaisesRegex(error, text):
                call()

    def test_no_tokens(self):
        empty = torch.ones(0, 3)
        routing_map = empty.bool()
        self.assertEqual(moe.histogram(routing_map).tolist(), [0, 0, 0])
        permuted, chosen, indices = moe.permute(torch.ones(0, 5), routing_map,
                                                empty)
        self.assertEqual((permuted.shape, chosen.shape, indices.shape),
                         ((0, 5), (0,), (0,)))
        self.assertEqual(moe.unpermute(permuted, indices, (0, 5), empty,
                                       routing_map).shape, (0, 5))

        permuted, chosen, indices = moe.permute(
            torch.ones(0, 5), routing_map, empty, 6, drop_and_pad=True)
        self.assertEqual(permuted.tolist(), [[0] * 5] * 6)
        self.assertEqual(chosen.tolist(), [0] * 6)
        self.assertEqual(indices.tolist(), [-1] * 6)
        self.assertEqual(
            moe.unpermute(permuted, indices, (0, 5), empty, routing_map,
                          drop_and_pad=True).shape, (0, 5))

    def test_large_z_loss(self):
        logits = torch.full((2, 3), 1e8).requires_grad_()
        moe.z_loss(logits, 1e-16).backward()  # 2 z lse p / tokens
        torch.testing.assert_close(logits.grad, torch.full((2, 3), 1e-8 / 3),
                                   rtol=1e-6, atol=0)

    def test_no_experts(self):
        logits = torch.ones(3, 0).requires_grad_()
        loss = moe.z_loss(logits, 1.0)  # as the mean of logsumexp(-1)^2
        self.assertEqual(loss.item(), torch.inf)
        loss.backward()
        self.assertEqual(logits.grad.shape, (3, 0))
        self.assertTrue(moe.z_loss(logits[:0], 1.0).isnan())


@unittest.skipIf(theirs is None, NO_MEGATRON)
class Megatron(TestCase):
    SIZES = ((64, 8, 2), (1000, 16, 4), (5, 4, 1), (777, 64, 8))

    def test_routing(self):
        # Until 0.16, without sqrtsoftplus, Megatron-LM rounds the scores of
        # sigmoid, so that in 16 bits many are equal.
        newer = "sqrtsoftplus" in theirs.topk_routing_with_score_function.__doc__
        for tokens, experts, topk in self.SIZES:
            for dtype in DTYPES:
                # Different logits, and in float32 different sums of groups, because
                # torch.topk has no order for equal ones.
                exact = dtype == torch.float32
                logits = torch.stack([torch.randperm(experts) for _ in
                                      range(tokens)]) / 8.0
                logits = (logits + torch.rand(tokens, experts if exact else 1) / 16
                          ).to(dtype)
                bias = torch.arange(experts) * 4.0
                variants = [dict(), dict(pre_softmax=True),
                            dict(scaling_factor=2.5)]
                functions = ["sqrtsoftplus"] if newer else []
                if newer or exact:
                    functions.append("sigmoid")
                for one in functions:
                    variants += [dict(score_function=one),
                                 dict(score_function=one, expert_bias=bias)]
                for groups, group_topk in ((4, 1), (4, 2), (8, 3)):
                    if exact and group_topk <= topk <= group_topk * (
                            experts // groups):
                        variants += [dict(one, num_groups=groups,
                                          group_topk=group_topk)
                                     for one in variants if "num_groups" not in one]
                for arguments in variants:
                    self.check_routing(logits, topk, arguments)

    def check_routing(self, logits, topk, arguments):
        named = dict(arguments)
        named["use_pre_softmax"] = named.pop("pre_softmax", False)
        probs, routing_map = moe.route(logits, topk, **arguments)
        p, m = theirs.topk_routing_with_score_function(logits, topk, **named)
        self.assertTrue(torch.equal(routing_map, m), (logits.dtype, arguments))
        self.assertLess((probs - p).abs().max().item(),
                        4 * EPS[logits.dtype] * p.max().item())

    def test_capacity(self):
        for tokens, experts, topk in self.SIZES:
            probs, routing_map = routed(tokens, experts, topk)
            for factor in (0.5, 1.0, 1.25, 4.0, 100.0):
                limit = moe.capacity(tokens, topk, experts, factor)
                self.assertEqual(limit, theirs.get_capacity(
                    tokens * topk, experts, factor))
                self.assertEqual(
                    moe.capacity(tokens, topk, experts, factor, 9),
                    theirs.get_capacity(tokens * topk, experts, factor, 9))
                p, m = theirs.apply_router_token_dropping(
                    probs, routing_map, topk, factor)
                ours = moe.apply_capacity(probs, routing_map, limit)
                self.assertTrue(torch.equal(ours[1], m), (tokens, factor))
                self.assertTrue(torch.equal(ours[0], p))
                # torch.topk leaves open which of the tokens with the same 0 or 1
                # it takes, so compare the numbers of tokens.
                _, m = theirs.apply_router_token_dropping(
                    probs, routing_map, topk, factor, "position")
                _, kept = moe.apply_capacity(probs, routing_map, limit,
                                             drop_policy="position")
                self.assertTrue(torch.equal(kept.sum(0), m.sum(0)))
                for policy in ("probs", "position"):
                    p, m = theirs.apply_router_token_dropping(
                        probs, routing_map, topk, factor, policy, True)
                    ours = moe.apply_capacity(probs, routing_map, limit,
                                              drop_policy=policy,
                                              pad_to_capacity=True)
                    self.assertTrue(torch.equal(ours[1].sum(0), m.sum(0)))
                    if policy == "probs":
                        self.assertTrue(torch.equal(ours[0], p))

    def test_permute(self):
        for tokens, experts, topk in self.SIZES:
            for dtype in DTYPES:
                for factor in (None, 1.0):
                    self.check_permute(tokens, experts, topk, dtype, factor)

    def check_permute(self, tokens, experts, topk, dtype, factor):
        probs, routing_map = routed(tokens, experts, topk)
        arguments = dict(num_out_tokens=tokens * topk)
        if factor is not None:
            limit = min(tokens, moe.capacity(tokens, topk, experts, factor))
            probs, routing_map = moe.apply_capacity(probs, routing_map, limit,
                                                    pad_to_capacity=True)
            arguments = dict(num_out_tokens=limit * experts, drop_and_pad=True)
        x = randn(tokens, 24, dtype=dtype)
        ours = moe.permute(x, routing_map, probs, **arguments)
        expected = theirs.permute(x, routing_map, probs, **arguments)
        for a, b in zip(ours, expected):
            self.assertTrue(torch.equal(a, b), (tokens, dtype, factor))
        padded = dict(drop_and_pad=factor is not None)
        y = moe.unpermute(ours[0], ours[2], x.shape, probs, routing_map, **padded)
        z = theirs.unpermute(ours[0], ours[2], x.shape, probs, routing_map,
                             **padded)
        # The same products and order of sums, in float32: the same bits.
        self.assertTrue(torch.equal(y, z), (tokens, dtype, factor))
        plain = moe.unpermute(ours[0].float(), ours[2], x.shape)
        self.assertTrue(torch.equal(plain, theirs.unpermute(
            ours[0].float(), ours[2], x.shape)))

    def test_losses(self):
        for tokens, experts, topk in self.SIZES:
            logits = randn(tokens, experts)
            probs = logits.softmax(-1)
            counts = moe.histogram(routed(tokens, experts, topk)[1])
            a = moe.aux_loss(probs, counts, tokens, topk, 0.01).item()
            b = theirs.switch_load_balancing_loss_func(
                probs, counts, tokens, topk, experts, 0.01).item()
            self.assertLess(abs(a - b), 2e-6 * b)
            a = moe.z_loss(logits, 1e-3).item()
            b = theirs.z_loss_func(logits, 1e-3).item()
            self.assertLess(abs(a - b), 2e-6 * b)


if __name__ == "__main__":
    main()
