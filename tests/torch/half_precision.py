"""What the tests of swamp_torch.enable(half_precision=True) share."""

import support

import torch

import swamp_torch

HALF = (torch.float16, torch.bfloat16)
EPS = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}


def use(ours):
    """Computes with swamp's kernels from now on, or with PyTorch's own."""
    swamp_torch.enable(half_precision=ours)


def assert_as_stock(test, calls, use=use):
    """Each call gives what it gives with PyTorch's own kernels: the same bits, or the
    same error. Returns the names of those that are errors."""
    refused = set()
    for name, call in calls.items():
        seen = []
        for one in (False, True):
            use(one)
            seen.append(support.caught(call))
        stock, ours = seen
        test.assertIs(type(ours), type(stock), (name, ours, stock))
        if isinstance(stock, torch.Tensor):
            test.assert_same(ours, stock, name)
        elif isinstance(stock, list):
            for one, other in zip(ours, stock, strict=True):
                test.assert_same(one, other, name)
        else:
            test.assertEqual(ours, stock, name)
            refused.add(name)
    return refused


def error(result, exact):
    return (result.double() - exact).norm().item()


def randn(*shape, dtype=torch.float32, layout="rows", seed=0):
    """A tensor of a shape and a layout of its last two dimensions."""
    torch.manual_seed(seed + sum(shape))
    if layout == "rows":
        return torch.randn(shape).to(dtype)
    *batch, m, n = shape
    if layout == "columns":
        return torch.randn(*batch, n, m).to(dtype).mT
    if layout == "slice":
        return torch.randn(*batch, m, n + 5).to(dtype)[..., 2:n + 2]
    if layout == "steps":
        return torch.randn(*batch, m, 2 * n).to(dtype)[..., ::2]
    if layout == "expanded":
        return torch.randn(*batch, 1, n).to(dtype).expand(*batch, m, n)
    if layout == "shared":  # by all matrices of a batch
        return torch.randn(m, n).to(dtype).expand(*batch, m, n)
    raise ValueError(layout)


def with_gradients(call, *inputs, rounded=None):
    """The result of a call, then the gradients of its inputs, for a random gradient of
    the result, which is rounded to a dtype, or to that of the result."""
    inputs = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
              for x in inputs]
    y = call(*inputs)
    g = randn(*y.shape, dtype=rounded or y.dtype, seed=1).to(y.dtype)
    kept = g.clone()
    y.backward(g)
    assert support.same(g, kept), "the incoming gradient was written"
    return [y.detach(), *(x.grad for x in inputs)]
