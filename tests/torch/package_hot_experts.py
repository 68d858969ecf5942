"""swamp_torch.moe.HotExperts on 2 and 4 ranks: outputs, gradients and states of the
model without replicas, and what is refused."""

import copy
from functools import partial

from half_precision import randn
from support import CI, TestCase, main, run_ranks

import torch

import swamp_torch
from swamp_torch import moe


def train_hot(rank, world, hot, optimizer_of, dtype, autocast=False):
    """Outputs of some steps of four experts, and the state dict of the last; the hot
    experts change, and one has no tokens."""
    torch.manual_seed(0)
    everything = [torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(),
                                      torch.nn.Linear(16, 8)).to(dtype)
                  for _ in range(4)]
    local = 4 // world
    experts = moe.HotExperts(everything[rank * local:][:local], hot)
    optimizer = optimizer_of(experts.parameters())
    outputs, seen = [], []
    for step in range(1, 9):
        tokens = randn(24, 8, dtype=dtype, seed=10 * step + rank)
        logits = randn(24, 4, seed=step) * 3
        logits[:, step % 4] += 4
        logits[:, (step + 2) % 4] -= 50
        probs, routing_map = moe.route(logits, 2)
        optimizer.zero_grad()
        for part in (slice(0, 16), slice(16, 24)):  # two micro batches
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                output = experts(tokens[part], probs[part], routing_map[part])
            output.float().square().sum().backward()
            outputs.append(output.detach())
        experts.reduce_gradients()
        optimizer.step()
        if hot and moe.updates_hot_experts(step, 4):
            experts.update(moe.histogram(routing_map), optimizer)
            seen.append(experts.hot)
        if step == 6:
            state = copy.deepcopy(experts.state_dict())
            if hot:
                assert not any("replicas" in name for name in state)
                assert experts.hot == seen[-1]
                experts.set_hot([], optimizer)
            kept = copy.deepcopy(optimizer.state_dict())
            experts.load_state_dict(state)
            optimizer.load_state_dict(kept)
            assert experts.hot == []
            if hot:
                experts.set_hot([3, 0], optimizer)
    return outputs, experts.state_dict(), seen, experts.bytes_saved, experts.bytes_reduced


HOT = [(partial(torch.optim.SGD, lr=1e-3, momentum=0.9), torch.float32, 1e-5),
       (partial(swamp_torch.AdamW, lr=1e-2), torch.float32, 1e-4),
       (partial(swamp_torch.AdamW, lr=1e-3), torch.bfloat16, 2e-2),
       (partial(swamp_torch.offload.AdamW, lr=1e-2), torch.float32, 1e-4),
       (partial(torch.optim.SGD, lr=1e-3), torch.float32, 2e-2, True)]


def moved(rank, world):
    """The replica of an expert after another one's, without its optimizer's state."""
    torch.manual_seed(rank)
    experts = moe.HotExperts([torch.nn.Linear(8, 8).bfloat16()], 1)
    optimizer = swamp_torch.AdamW(experts.parameters())
    for hot in (0, 1):
        experts.set_hot([hot])
        tokens = torch.ones(6, 8, dtype=torch.bfloat16)
        chosen = torch.ones(6, world, dtype=torch.bool)
        experts(tokens, chosen.float(), chosen).float().square().sum().backward()
        experts.reduce_gradients()
        optimizer.step()
        optimizer.zero_grad()
    return experts.replicas[0].weight.detach()


def hot_work(rank, world):
    results = [[train_hot(rank, world, hot, make, dtype, *more) for hot in (0, 2)]
               for make, dtype, _, *more in HOT]
    experts = moe.HotExperts([torch.nn.Linear(2, 2) for _ in range(2)], 1)
    refused = []
    for call in (lambda: experts.set_hot([1, 2]), lambda: experts.set_hot([9]),
                 lambda: experts(torch.ones(3, 2), torch.ones(3, 3), torch.ones(3, 3)),
                 lambda: moe.HotExperts([], 0),
                 lambda: torch.nn.ModuleDict(dict(
                     replicas=experts.experts[0], hot=experts)).load_state_dict({
                         f"hot.{n}": v for n, v in experts.state_dict().items()})):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            refused.append(str(error))
    return results, refused, moved(rank, world)


class Hot(TestCase):
    def test_as_without_replicas(self):
        for world in (2, 4)[:1 + CI]:
            ranks = run_ranks(hot_work, world)
            for rank, (results, refused, replica) in enumerate(ranks):
                self.assert_same(replica, ranks[0][2])
                for (_, dtype, tolerance, *_), (cold, hot) in zip(HOT, results):
                    with self.subTest(world=world, rank=rank, dtype=dtype):
                        close = partial(torch.testing.assert_close, rtol=tolerance,
                                        atol=tolerance)
                        close(hot[0], cold[0])
                        self.assertEqual(list(hot[1]), list(cold[1]))
                        close(hot[1], cold[1])
                        self.assertEqual(cold[2:], ([], 0, 0))
                        self.assertEqual(len(hot[2]), 4)
                        self.assertGreater(len(set(map(tuple, hot[2]))), 1)
                        self.assertGreater(hot[3], 0)
                        print(f"{world} ranks, rank {rank}, {dtype}: {hot[3]} bytes of "
                              f"all-to-all saved, {hot[4]} of gradients added")
                self.assertEqual([text.split(":")[0] for text in refused], [
                    "experts", "experts", "routing_map", "experts, hot",
                    "Error(s) in loading state_dict for ModuleDict"])


if __name__ == "__main__":
    main()
