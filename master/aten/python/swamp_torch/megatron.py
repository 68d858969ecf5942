"""The compiled modules that Megatron-LM imports, for CPU tensors.

Megatron-LM looks for modules of apex and skips a fused path if one is missing.
:func:`install` puts modules of the same names and functions into
``sys.modules``. Call it before Megatron-LM is imported::

    import swamp_torch.megatron
    swamp_torch.megatron.install()
    import megatron.core

Where the scale is a number of the dtype, the probabilities are those of Megatron-LM's
path in PyTorch, except for one in 5000 at most, which is its neighbour, and bfloat16
ones below 2^-125, which may be 0. ``toolchain/check --clients=megatron-core release -R
megatron_lm`` compares with megatron-core 0.16.1, with ``MEGATRON_LM=FOLDER`` with a
checkout.
"""

import sys
import types
from typing import Any, Callable, Dict

import torch

_ops = torch.ops.swamp


def _wgrad_gemm_accum(*dtypes: torch.dtype) -> Callable[..., None]:
    def accumulate(input: torch.Tensor, grad_output: torch.Tensor,
                   main_grad: torch.Tensor) -> None:
        """main_grad += grad_output^T input, summed in float32.

        Args:
            input: [..., in], float16, bfloat16 or float32.
            grad_output: [..., out], of the same dtype and number of rows.
            main_grad: [out, in]; written.

        Raises:
            RuntimeError: arguments that do not fit each other; nothing is
                written then.
        """
        if main_grad.dtype not in dtypes:
            raise RuntimeError(
                f"main_grad: got the dtype {main_grad.dtype}, expected "
                + " or ".join(map(str, dtypes)))
        _ops.wgrad_gemm_accum(input, grad_output, main_grad)

    return accumulate


def _row_softmax(operator: Callable[..., torch.Tensor]) -> Dict[str, Any]:
    """The functions of one of apex's softmax modules. Errors are those of the
    operator ``swamp::*``."""

    def forward(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        *mask, scale = arguments  # scale: a number, or a tensor with one
        # apex passes the scale in the dtype of x, and masks where a byte is 1.
        rounded = torch.tensor(float(scale), dtype=x.dtype).item()
        return operator(x, *(m if m.dtype == torch.bool else m == 1
                             for m in mask), rounded)

    def backward(grad: torch.Tensor, y: torch.Tensor,
                 scale: Any) -> torch.Tensor:
        """The gradient of x, written into that of y if it is contiguous, as in
        apex; that of sum(), for example, has one element of memory."""
        result: torch.Tensor = _ops.scaled_softmax_backward(
            grad.contiguous(), y, float(scale))
        return result

    return {"forward": forward, "backward": backward}


def _get_batch_per_block(query_len: int, key_len: int, batches: int,
                         heads: int) -> int:
    """The number of rows that apex's kernel computes at once. Callers require
    sizes that are multiples of it."""
    power = 1 << max(0, key_len - 1).bit_length()
    warp = min(power, 32)
    return 128 // warp * (2 if power <= 128 else 1)


# What each module contains.
_MODULES: Dict[str, Dict[str, Any]] = {
    "fused_weight_gradient_mlp_cuda": {
        "wgrad_gemm_accum_fp32": _wgrad_gemm_accum(torch.float32),
        "wgrad_gemm_accum_fp16": _wgrad_gemm_accum(torch.float16,
                                                   torch.bfloat16),
    },
    "scaled_softmax_cuda": _row_softmax(_ops.scaled_softmax),
    "scaled_masked_softmax_cuda": {
        **_row_softmax(_ops.scaled_masked_softmax),
        "get_batch_per_block": _get_batch_per_block,
    },
    "scaled_upper_triang_masked_softmax_cuda":
        _row_softmax(_ops.scaled_upper_triang_masked_softmax),
}


def install() -> None:
    """Puts the modules into ``sys.modules``; replaces any of the same names.

    ``fused_weight_gradient_mlp_cuda`` is for ``--gradient-accumulation-fusion``:
    a linear layer's weight gradient is added to the float32 ``main_grad`` without
    being rounded to 16 bits, or with ``wgrad_gemm_accum_fp16`` to a 16-bit one,
    rounded once. The modules ``scaled_*softmax_cuda`` are those of
    FusedScaleMaskSoftmax, with apex's semantics: the scale is rounded to the dtype
    of the scores, and rows that are masked entirely are 0; ``backward`` writes into
    the gradient.
    """
    for name, contents in _MODULES.items():
        module = types.ModuleType(name, f"swamp's {name}, for CPU tensors.")
        vars(module).update(contents)
        sys.modules[name] = module
