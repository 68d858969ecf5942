"""What torch.compile sees of PyTorch's operators of rows and activations: if swamp's
kernels are switched on, swamp's operators.

PyTorch composes most of them of others, for which inductor generates code of its own. A kernel for the Python dispatcher, which runs only where PyTorch traces, sees
the call first. It lets swamp's kernel of the dispatcher decide as in eager mode;
that one calls an operator ``swamp::*``, which inductor leaves as it is.

linear and bilinear are composed of PyTorch's operators by swamp's kernel of the
dispatcher, in compiled code too.

With ``reproducible``, the gradients of an embedding and of indices are PyTorch's
kernels instead of inductor's, whose bits differ between runs. Where such a sum has a
gradient itself, inductor's stays, and a warning says so.

Compiled code is valid for the switches that it was compiled with: a guard of
dynamo compares them, and the key of PyTorch's caches on disk names them.

This needs private names of PyTorch, which 2.10, 2.13 and 2.14 have. Without them,
compiled code has PyTorch's kernels, and a warning says so once.
"""

import re
import sys
import warnings
from typing import Any, Callable

import torch
from torch._C import DispatchKey

from ._load import __version__

_ops = torch.ops.swamp
_MODULE = __name__

# half_precision and reproducible, as _operators.py sets them: what a guard compares.
switches = (False, False)


# What enable()'s argument `unreproducible` does; and whether a sum of inductor's was
# reported.
unreproducible = "warn"
_is_reported = False


def set_unreproducible(action: str) -> None:
    """Sets what compiled code does whose sums depend on the order of threads."""
    global unreproducible, _is_reported
    unreproducible, _is_reported = action, False


def set_switches(half_precision: bool, reproducible: bool) -> None:
    """Sets the two switches that compiled code depends on."""
    global switches
    _ops.set_half_precision(half_precision)
    _ops.set_reproducible(reproducible)
    switches = (half_precision, reproducible)


def _is_compiling() -> bool:
    """Whether this thread runs torch.compile, and neither torch.export, whose
    program must run without swamp, nor a transformation of torch.func in it."""
    translator = sys.modules.get("torch._dynamo.symbolic_convert")
    return (translator is not None
            and getattr(translator.tls, "current_tx", None) is not None
            # Not inductor's own patterns, which it traces while it compiles.
            and torch._guards.TracingContext.try_get() is not None
            and not torch.compiler.is_exporting()
            and torch._C._functorch.peek_interpreter_stack() is None)


def _depend_on_switches() -> None:
    """Makes what is compiled depend on the switches."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import AttrSource
    from torch._dynamo.symbolic_convert import tls
    source = AttrSource(tls.current_tx.import_source(_MODULE), "switches")
    install_guard(source.make_guard(GuardBuilder.EQUALS_MATCH))
    config = torch.compiler.config
    tag = re.sub(r" swamp \S+ \d\d$", "", config.cache_key_tag)
    if any(switches):
        tag += " swamp {} {:d}{:d}".format(__version__, *switches)
    if tag != config.cache_key_tag:
        config.cache_key_tag = tag


def _can_replace() -> bool:
    """Whether what is called now is compiled, and may have swamp's operators."""
    try:
        if not _is_compiling():
            return False
        _depend_on_switches()
    except (AttributeError, ImportError, TypeError) as error:
        warnings.warn(
            "swamp_torch: torch.compile uses PyTorch's operators of rows and "
            f"activations, because PyTorch {torch.__version__} is not as expected: "
            f"{error}")
        return False
    return True


def _is_known(argument: Any) -> bool:
    """Whether a tensor has no operators of its own, as DTensor has."""
    return (not isinstance(argument, torch.Tensor)
            or type(argument).__module__.startswith("torch._subclasses.")
            or type(argument) in (torch.Tensor, torch.nn.Parameter))


def _trace(overload: Any, key: DispatchKey) -> None:
    """Registers the kernel of an operator for the Python dispatcher."""
    composite = DispatchKey.CompositeImplicitAutograd
    stock = overload.py_kernels.pop(key, None)
    own = torch._ops.resolve_key(overload, key) if stock is None else key

    def below(*args: Any, **kwargs: Any) -> Any:
        if stock is not None:
            return stock(*args, **kwargs)
        return overload._op_dk(own, *args, **kwargs)

    def set_compiling(value: bool) -> Any:  # not seen by a mode
        return _ops._set_compiling.default._op_dk(composite, value)

    @overload.py_impl(key)  # type: ignore[untyped-decorator]
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if (not all(map(_is_known, (*args, *kwargs.values())))
                or not _can_replace()):
            return below(*args, **kwargs)
        if overload in _OPAQUE:
            takes, opaque = _OPAQUE[overload]
            return (opaque if takes(*args, **kwargs) else below)(*args, **kwargs)
        before = set_compiling(True)
        try:
            return below(*args, **kwargs)
        finally:
            set_compiling(before)


def _takes_log_softmax(x: torch.Tensor, dim: int, dtype: Any = None) -> bool:
    """Whether the kernel of _log_softmax in row_overrides.cpp is swamp's."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    return (dtype in (None, x.dtype) and x.device.type == "cpu"
            and x.layout == torch.strided and -x.dim() <= dim < x.dim()
            and (any(switches) if half else
                 x.dtype == torch.float32 and switches[1]))


def _takes_softmax(x: torch.Tensor, dim: int, dtype: Any = None) -> bool:
    return switches[1] and _takes_log_softmax(x, dim, dtype) and x.numel() != 0


def _softmax(x: torch.Tensor, dim: int, dtype: Any = None) -> torch.Tensor:
    rows = x.movedim(dim, -1)
    y: torch.Tensor = _ops.scaled_softmax(rows.reshape(1, 1, -1, x.shape[dim]), 1.0)
    return y.view(rows.shape).movedim(-1, dim)


def _takes_activation(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether an activation has swamp's bits. Of 16 bits alone inductor's code, which
    joins it with other operators, is faster."""
    numbers = [abs(v) for v in (*args, *kwargs.values()) if isinstance(v, (int, float))]
    return (switches[1] and x.device.type == "cpu" and x.layout == torch.strided
            and x.dtype in (torch.float32, torch.float16, torch.bfloat16)
            and kwargs.get("approximate", "none") in ("none", "tanh")
            and all(v <= torch.finfo(torch.float32).max for v in numbers))


def _activation(name: str) -> Callable[..., torch.Tensor]:
    """An activation of PyTorch by swamp's operator."""
    def call(x: torch.Tensor, beta: float = 1, threshold: float = 20, *,
             approximate: str = "none") -> torch.Tensor:
        return _ops.activation(
            x, "gelu_tanh" if approximate == "tanh" else name, beta, threshold)
    return call


def _activation_(name: str) -> Callable[..., torch.Tensor]:
    """The same in place; autograd keeps a copy of the old values."""
    call = _activation(name)
    return lambda x, **kwargs: x.copy_(call(x.clone(), **kwargs))


def _takes_embedding(grad: torch.Tensor, *args: Any) -> bool:
    return switches[1] and grad.device.type == "cpu"


def _takes_sum(x: torch.Tensor, *args: Any, accumulate: bool = True,
               **kwargs: Any) -> bool:
    """Whether a sum by indices is PyTorch's. One that has a gradient is inductor's."""
    global _is_reported
    if not (switches[1] and accumulate and x.device.type == "cpu"
            and x.is_floating_point()):
        return False
    if not torch.is_grad_enabled() or not any(
            isinstance(one, torch.Tensor) and one.requires_grad
            for one in (x, *args, *kwargs.values())):
        return True
    text = ("swamp_torch: reproducible: a function that torch.compile compiles adds by "
            "indices (index_add, index_put, put) with atomics, in any order; "
            "enable()'s argument unreproducible is 'warn', 'raise' or 'ignore'.")
    if unreproducible == "raise":
        raise RuntimeError(text)
    if unreproducible == "warn" and not _is_reported:
        _is_reported = True
        warnings.warn(text)
    return False


def _takes_index_put(x: torch.Tensor, indices: Any, values: torch.Tensor,
                     accumulate: bool = False) -> bool:
    return _takes_sum(x, values, accumulate=accumulate)


def _index_put(x: torch.Tensor, indices: Any, values: torch.Tensor,
               accumulate: bool = False) -> torch.Tensor:
    return _ops._index_put_sum(x, indices, values)


def _takes_put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor,
               accumulate: bool = False) -> bool:
    return _takes_sum(x, source, accumulate=accumulate)


def _put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor,
         accumulate: bool = False) -> torch.Tensor:
    return _index_put(x.reshape(-1), [index.reshape(-1)],
                      source.reshape(-1)).view(x.shape)


def _takes_index_add(x: torch.Tensor, dim: int, index: torch.Tensor,
                     source: torch.Tensor, *, alpha: float = 1) -> bool:
    return x.dim() != 0 and _takes_sum(x, source)


def _index_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor,
               *, alpha: float = 1) -> torch.Tensor:
    return _index_put(x.movedim(dim, 0), [index.reshape(-1)],
                      (source * alpha).movedim(dim, 0)).movedim(0, dim)


def _copied(call: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same in place."""
    return lambda x, *args, **kwargs: x.copy_(call(x, *args, **kwargs))


# Operators that an operator swamp::* replaces, and for which arguments.
_OPAQUE = {
    torch.ops.aten.log_softmax.int: (
        _takes_log_softmax, lambda x, dim, dtype=None: _ops._log_softmax(x, dim)),
    torch.ops.aten.softmax.int: (_takes_softmax, _softmax),
    torch.ops.aten.embedding_dense_backward.default: (
        _takes_embedding, _ops._embedding_dense_backward),
    torch.ops.aten.index_put.default: (_takes_index_put, _index_put),
    torch.ops.aten.index_add.default: (_takes_index_add, _index_add),
    torch.ops.aten.put.default: (_takes_put, _put),
    torch.ops.aten.softplus.default: (_takes_activation, _activation("softplus")),
    torch.ops.aten.elu.default: (
        _takes_activation, lambda x, alpha=1, scale=1, input_scale=1: _ops.activation(
            x, "elu", input_scale, 20, alpha, scale)),
    # -softplus(-x), which is x beyond the threshold.
    torch.ops.aten.log_sigmoid.default: (
        _takes_activation, lambda x: _ops.activation(x, "softplus", -1, 1e38)),
}
for _name in ("index_put", "index_add", "put"):
    _takes, _sum = _OPAQUE[getattr(torch.ops.aten, _name).default]
    _OPAQUE[getattr(torch.ops.aten, _name + "_").default] = (
        _takes, _copied(_sum))
# The gradients of log, pow and the like are composed of other operators, which
# would have other bits than swamp's: inductor's code remains.
for _name in ("silu", "gelu", "tanh", "sigmoid", "exp", "mish"):
    for _suffix, _call in (("", _activation), ("_", _activation_)):
        _OPAQUE[getattr(torch.ops.aten, _name + _suffix).default] = (
            _takes_activation, _call(_name))


def register() -> None:
    """Registers the kernels, once: for the operators that swamp replaces before PyTorch
    composes them, for which PyTorch itself has no kernel of this key."""
    aten = torch.ops.aten
    replaced = [getattr(aten, name.removeprefix("aten::")).default for name in
                torch._C._dispatch_get_registrations_for_dispatch_key("AutogradCPU")
                if name.startswith("aten::") and "." not in name]
    # What has an embedding must depend on the switches before its gradient is
    # traced, which the caches on disk save.
    for overload in (*replaced, aten.embedding.default, *_OPAQUE):
        _trace(overload, DispatchKey.AutogradCPU)
    _trace(aten.cross_entropy_loss.default, DispatchKey.AutocastCPU)
