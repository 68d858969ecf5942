"""A hand-written loss scaler that uses the two operators, for PyTorch 1.13, which
has no CPU kernels for them, and later versions; not part of the tests.

usage: hand_written_loop.py LIBSWAMP_ATEN
"""

import math
import sys

import torch

torch.ops.load_library(sys.argv[1])
unscale = torch._amp_foreach_non_finite_check_and_unscale_


def expect_operator():
    """Against plain tensor arithmetic."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        base = torch.randn(60, 70).to(dtype)
        for view in (base, base.t(), base[:, ::2], base[3:, :40], base[5, 5]):
            wide = view.double() if dtype == torch.float64 else view.float()
            expected = (wide * torch.tensor(0.3).to(wide.dtype)).to(dtype)
            found = torch.zeros(1)
            unscale([view, torch.empty(0)], found, torch.tensor(0.3))
            assert torch.equal(view, expected) and found.item() == 0
    twice = torch.full((4,), 8.0)
    unscale([twice, twice[1:]], torch.zeros(()), torch.tensor(0.5))
    assert twice.tolist() == [4.0, 2.0, 2.0, 2.0]
    for bad in (torch.ones(3).int(), torch.ones(1).expand(3)):
        try:
            unscale([torch.ones(3), bad], torch.zeros(()), torch.tensor(0.5))
            raise SystemExit("no error")
        except RuntimeError as error:
            print("error:", str(error).split("\n")[0])


def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(),
                                torch.nn.Linear(64, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scale, tracker = torch.tensor(2.0 ** 125), torch.tensor(0).int()
    first = None
    for step in range(200):
        x = torch.randn(32, 16)
        loss = (model(x) - x).square().mean()
        first = first or loss.item()
        optimizer.zero_grad()
        (loss * scale).backward()
        found = torch.zeros(())
        unscale([p.grad for p in model.parameters()], found,
                scale.double().reciprocal().float())
        if found.item() == 0:
            optimizer.step()
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 50)
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}, found_inf "
                  f"{found.item():g}, next scale 2^{math.log2(scale.item()):g}")
    assert loss.item() < first / 2
    print(f"loss {first:.4f} -> {loss.item():.4f}")


print("torch", torch.__version__, "swamp", torch.ops.swamp.version())
expect_operator()
train()
print("any_nonfinite", torch.ops.swamp.any_nonfinite([]).item(),
      torch.ops.swamp.any_nonfinite([torch.tensor([math.nan])]).item())
