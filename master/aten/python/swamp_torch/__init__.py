"""swamp's mixed-precision kernels in PyTorch, on CPUs.

Importing the package loads libswamp_aten: from then on PyTorch's own operators
``_amp_foreach_non_finite_check_and_unscale_`` and ``_amp_update_scale_`` run
swamp's kernels for CPU tensors, with the same bits, for every caller in the
process: ``torch.amp.GradScaler("cpu")``, ``ShardedGradScaler``, fused optimizers.
:func:`disable` restores PyTorch's own kernels. ``enable(half_precision=True)``
also computes float16 and bfloat16 products and attention in float32.

The package also has functions that PyTorch lacks: :func:`any_nonfinite`,
:func:`grad_norm_and_check`, :func:`clip_grad_norm_`, :func:`foreach_lerp_`
and :func:`get_ema_multi_avg_fn` (moving averages), optimizers
that take the place of ``torch.optim``'s, from :class:`AdamW` on, and softmax, cross entropy and normalization with
float32 arithmetic for 16-bit tensors in :mod:`swamp_torch.functional` and
:mod:`swamp_torch.nn`. :mod:`swamp_torch.moe` has the operators of mixtures of
experts, :mod:`swamp_torch.float8` training in float8, MXFP8, NVFP4 and HiFloat8.
:mod:`swamp_torch.tensor_parallel` divides linear layers over ranks, with the bits of
one process. :mod:`swamp_torch.offload` has the optimizers for models on GPUs, with
their state and step on the CPU. :mod:`swamp_torch.lightning` and :mod:`swamp_torch.transformers` are for
models and trainers of these packages. These four are imported when they are first
used.

If PyTorch is missing or is not the version that the package was built for, the
import raises an ImportError with instructions.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._load import __version__, load

load()

from . import _compile, _optimizer, float8, functional, megatron, moe, nn  # noqa: E402
from ._clip import clip_grad_norm_  # noqa: E402
from ._operators import (any_nonfinite, disable,  # noqa: E402
                         disabled, enable, foreach_lerp_,
                         get_ema_multi_avg_fn, grad_norm_and_check, info,
                         is_active, unscale_)
from ._optimizer import *  # noqa: E402, F403

_compile.register()

if TYPE_CHECKING:
    from . import (lightning as lightning, offload as offload,
                   tensor_parallel as tensor_parallel, transformers as transformers)
else:
    def __getattr__(name: str) -> Any:
        """Imports modules that need other packages, or time, when they are first used."""
        if name in ("lightning", "offload", "tensor_parallel", "transformers"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

__all__ = [
    "__version__",
    "any_nonfinite",
    "clip_grad_norm_",
    "disable",
    "disabled",
    "enable",
    "float8",
    "foreach_lerp_",
    "functional",
    "get_ema_multi_avg_fn",
    "grad_norm_and_check",
    "info",
    "is_active",
    "megatron",
    "moe",
    "nn",
    "unscale_",
]
__all__ += _optimizer.__all__
