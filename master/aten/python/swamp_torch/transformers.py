"""swamp's operators in models of Hugging Face's transformers, for CPUs.

Needs the package ``transformers``, so it is imported when it is first used::

    from swamp_torch.transformers import apply
    model = apply(AutoModelForCausalLM.from_pretrained(...))

Modules are recognised by what they compute: a method is replaced if it and swamp's
give the same results for a few numbers. So what a new release changes is left alone.
"""

import copy
import functools
import inspect
import re
import types
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from transformers.activations import NewGELUActivation
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.utils.generic import can_return_tuple

from . import functional

Model = TypeVar("Model", bound=torch.nn.Module)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# The folders of transformers.models whose models are tested.
_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3",
             "olmo2", "mixtral", "qwen2_moe", "qwen3_moe", "gpt2", "bert", "t5")
# The layers of a gated MLP: gate and up (or one for both), down, the activation.
_MLPS = (("gate_proj", "up_proj", "down_proj", "act_fn"),
         ("gate_up_proj", None, "down_proj", "activation_fn"),
         ("wi_0", "wi_1", "wo", "act"))
# How the names of classes with a loss end, and whether targets are the next tokens.
_LOSSES = {"ForCausalLM": True, "LMHeadModel": True, "ForMaskedLM": False,
           "T5ForConditionalGeneration": False}
# The head of a model in the source of forward(). What follows it must be the loss, or
# the softcap of Gemma's logits.
_HEAD = re.compile(
    r"\w+ = self[.](lm_head|cls)[(].*[)]\s+"
    r"(if self[.]config[.]final_logit_softcapping is not None:\n(\s+logits = .*\n)+)?"
    r"\s*\w*loss = None\n")


def _rms(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    return functional.rms_norm(x, x.size(-1), weight, eps)


def _rounds_twice(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """LLaMA's: rounds the normalised row to the dtype of x, then multiplies."""
    one = x.dtype == weight.dtype == torch.float32
    return _rms(x, weight, eps) if one else weight * _rms(x, None, eps)


def _rounds_to_weight(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """T5's: rounds the normalised row to the dtype of the weight."""
    if weight.dtype == torch.float32:
        return _rms(x.float(), weight, eps)
    return weight * _rms(x, None, eps).to(weight.dtype)


_NORMS: Tuple[Callable[[Tensor, Tensor, float], Tensor], ...] = (
    _rounds_twice, _rounds_to_weight,
    lambda x, weight, eps: _rms(x, weight.float(), eps),  # OLMo 2
    lambda x, weight, eps: _rms(x, weight.float() + 1, eps))  # Gemma


def _gated_mlp(gate: str, up: Optional[str], down: str, function: functional.Function,
               self: Any, x: Tensor) -> Tensor:
    y = functional.gated_activation(
        getattr(self, gate)(x), up and getattr(self, up)(x), function)
    if hasattr(self, "dropout"):
        y = self.dropout(y)
    last = getattr(self, down)
    weight = getattr(last, "weight", None)
    # T5 keeps the weight of its last layer in float32.
    if (isinstance(weight, Tensor) and weight.is_floating_point()
            and not torch.is_autocast_enabled("cpu")):
        y = y.to(weight.dtype)
    return last(y)  # type: ignore[no-any-return]


def _stand_in(module: Any, **parts: Any) -> Any:
    """Returns a copy of a module with other weights and layers."""
    result = copy.copy(module)
    result._parameters, result._modules = {}, dict(module._modules)
    for name, part in parts.items():
        setattr(result, name, part)
    return result


def _candidates(module: Any) -> Iterator[
        Tuple[str, List[Tuple[Any, Tensor]], Callable[[Any, Tensor], Tensor]]]:
    """Yields what may replace a method of a module: its name, small modules and inputs
    for a test of both, and the replacement."""
    names = [*module._parameters, *module._modules]
    x = 12 * torch.arange(512., device="cpu").sin().view(8, 64)
    eps = next((n for n in ("variance_epsilon", "eps") if hasattr(module, n)), None)
    if names == ["weight"] and eps:
        half, one = torch.bfloat16, torch.float32
        tests = [(_stand_in(module, weight=torch.nn.Parameter(x[0].cos().to(of_weight))),
                  x.to(of_x)) for of_x, of_weight in ((one, one), (half, half), (half, one))]
        for norm in _NORMS:
            yield "forward", tests, (
                lambda self, x, norm=norm: norm(x, self.weight, getattr(self, eps)))
    if isinstance(module, NewGELUActivation):
        yield "forward", [(module, x)], lambda self, x: F.gelu(x, approximate="tanh")
    functions: Tuple[functional.Function, ...] = ("silu", "gelu", "gelu_tanh", "relu")
    for gate, up, down, act in _MLPS:
        if all(name is None or name in names for name in (gate, up, down, act)):
            same = torch.nn.Identity()
            same.weight = None  # type: ignore[assignment]
            layers = {gate: same, up or gate: torch.nn.Tanh() if up else same}
            test = _stand_in(module, **layers, **{down: same, "dropout": same})
            for function in functions:
                yield "forward", [(test, x)], functools.partial(
                    _gated_mlp, gate, up, down, function)
    if hasattr(module, "_apply_gate") and "gate_up_proj" in names:  # experts
        for function in functions:
            yield "_apply_gate", [(module, x)], (
                lambda self, x, function=function:
                functional.gated_activation(x, None, function))


@torch.no_grad()
def _replacement(module: Any) -> Optional[Tuple[str, Callable[..., Tensor]]]:
    """Returns the name of the method that swamp replaces, and with what; None if there
    is none. Their results must be equal, but for the last bit of a few elements.

    Raises:
        LookupError: the class computes something else than swamp.
    """
    tried = False
    for name, tests, ours in _candidates(module):
        tried, stock = True, getattr(type(module), name)

        def method(self: Any, *args: Tensor, ours: Any = ours, stock: Any = stock,
                   **kwargs: Tensor) -> Tensor:
            x, = (*args, *kwargs.values())
            ok = x.dtype in _DTYPES and x.device.type == "cpu"
            return (ours if ok else stock)(self, x)  # type: ignore[no-any-return]

        method.__name__ = name  # pickle looks it up, and finds the class's
        try:
            with torch.autocast("cpu", enabled=False):
                results = [(stock(test, x), method(test, x)) for test, x in tests]
        except Exception:  # the class expects other weights or arguments
            continue
        if all(a.dtype == b.dtype and a.isclose(b, 1e-5, 1e-5).float().mean() > 0.97
               for a, b in results):
            return name, method
    if tried:
        raise LookupError
    return None


def _set_method(module: torch.nn.Module, name: str, ours: Callable[..., Any]) -> None:
    """Leaves a module alone that has a method of its own: this one, or one of
    accelerate's hooks."""
    if name not in vars(module):
        setattr(module, name, types.MethodType(ours, module))


class _Headless:
    """A model whose head returns its input, as `self` of the forward() of its class."""

    def __init__(self, model: Any, name: str) -> None:
        head = model.cls.predictions.transform if name == "cls" else torch.nn.Identity()
        vars(self).update({"_of": model, name: head})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def _computes_loss(model: Any, next_tokens: bool) -> bool:
    """Whether the model's head and loss are those of _loss()."""
    head = model.get_output_embeddings()
    return (type(head) is torch.nn.Linear and not head._forward_hooks
            and not head._forward_pre_hooks and head.weight.device.type == "cpu"
            and head.weight.dtype in _DTYPES
            and (not next_tokens or model.loss_function is ForCausalLMLoss))


def _loss(head: torch.nn.Linear, x: Tensor, skip_logits: bool, target: Tensor,
          num_items_in_batch: Any, ignore_index: int) -> Tensor:
    """The loss of logits x or, if they are skipped, of the input x of the head."""
    reduction: functional.Reduction = (
        "mean" if num_items_in_batch is None else "sum")
    target, x = target.flatten(), x.flatten(0, -2)
    if not skip_logits:
        loss = functional.cross_entropy(x, target, ignore_index=ignore_index,
                                        reduction=reduction)
    else:
        if not torch.compiler.is_compiling():  # their number is in the data
            counts = target != ignore_index
            if int(counts.sum()) < 0.9 * target.numel():
                x, target = x[counts], target[counts]
        loss = functional.linear_cross_entropy(
            x, head.weight, target, head.bias, ignore_index=ignore_index,
            reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


def _set_loss(model: Any, next_tokens: bool) -> None:
    """Sets the forward() of a model with a loss of its vocabulary.

    Raises:
        LookupError: the class computes something else than swamp.
    """
    stock = type(model).forward
    names = list(inspect.signature(stock).parameters)[1:]
    found = _HEAD.search(inspect.getsource(inspect.unwrap(stock)))
    if not found:
        raise LookupError
    name, softcap = found[1], found[2]

    @functools.wraps(stock)
    @can_return_tuple  # type: ignore[untyped-decorator, unused-ignore]
    def forward(self: Any, *args: Any, skip_logits: Optional[bool] = None,
                **kwargs: Any) -> Any:
        kwargs.update(zip(names, args))
        keep = kwargs.get("logits_to_keep", 0)
        if (kwargs.get("labels") is None or isinstance(keep, Tensor) or keep
                or not _computes_loss(self, next_tokens)):
            return stock(self, return_dict=True, **kwargs)
        target = kwargs.pop("labels")
        items, ignored = None, -100
        if next_tokens:  # what the loss function of transformers takes
            items = kwargs.get("num_items_in_batch")
            ignored = kwargs.get("ignore_index", ignored)
            shifted = kwargs.get("shift_labels")
            if shifted is None:
                shifted = F.pad(target, (0, 1), value=ignored)[..., 1:]
            target = shifted
        elif (hasattr(self, "decoder") and kwargs.get("decoder_input_ids") is None
              and kwargs.get("decoder_inputs_embeds") is None):
            kwargs["decoder_input_ids"] = (
                self.prepare_decoder_input_ids_from_labels(target))
        if name == "cls":  # as BERT's class does for labels
            kwargs["use_cache"] = False
        skip = self.training if skip_logits is None else skip_logits
        if softcap and self.config.final_logit_softcapping is not None:
            skip = False
        out = stock(_Headless(self, name) if skip else self, return_dict=True, **kwargs)
        loss = _loss(self.get_output_embeddings(), out.logits, skip, target, items,
                     ignored)
        if out.get("aux_loss") is not None:
            loss = loss + self.router_aux_loss_coef * out.aux_loss
        return type(out)(**{**out, "loss": loss, "logits": None if skip else out.logits})

    _set_method(model, "forward", forward)


def apply(model: Model) -> Model:
    """Makes a model of transformers use swamp's operators: LLaMA, Mistral, Qwen2,
    Qwen3, Gemma 1 to 3, Phi-3, OLMo 2, Mixtral, Qwen2-MoE, Qwen3-MoE, GPT-2, BERT and
    T5, with any head. What Liger-Kernel's ``apply_liger_kernel_to_llama`` does on GPUs,
    for one model.

    ======================================  =====================================
    *RMSNorm, T5LayerNorm                   :func:`functional.rms_norm`, rounded
                                            where transformers round
    *MLP with a gate, and experts if        :func:`functional.gated_activation`:
    ``experts_implementation`` is not       one operator that rounds once and
    "eager"                                 keeps no result for the backward pass
    gelu_new, as in GPT-2                   one operator and one rounding
    *ForCausalLM, *LMHeadModel,             with ``labels``,
    BertForMaskedLM and                     :func:`functional.linear_cross_entropy`
    T5ForConditionalGeneration
    ======================================  =====================================

    In training, ``logits`` of the output is then None. ``forward`` takes one more
    argument, as with Liger-Kernel: ``skip_logits``, None for ``model.training``.
    If the logits are not skipped, :func:`functional.cross_entropy` takes them
    without a float32 copy. If the labels of more than a tenth of the rows are
    ignored, those rows are not multiplied (not under ``torch.compile``). A head
    that is not a plain ``torch.nn.Linear`` on a CPU (LoRA's, float8's), one with
    hooks, or another loss function is computed by transformers. Logits with a softcap
    (Gemma 2) are not skipped. A class that computes something else in the installed
    transformers than swamp is left alone, with one warning.

    Rotary embeddings stay; LayerNorm, attention and products stay PyTorch's
    operators, which ``swamp_torch.enable()`` can replace. Parameters, their names,
    class names and the signature of ``forward`` stay; a second call does nothing; a
    model that is pickled as a whole is loaded without the changes. Call it before
    wrappers: accelerate, DistributedDataParallel, ``torch.compile``.

    Args:
        model: is changed in place.

    Returns:
        model.

    Raises:
        TypeError: a model of another class.
    """
    modeling = next((one.__module__ for one in type(model).__mro__ if re.fullmatch(
        rf"transformers[.]models[.]({'|'.join(_FAMILIES)})[.]modeling_\1",
        one.__module__)), None)
    if modeling is None:
        raise TypeError(
            f"model: got {type(model).__name__}, expected a model of transformers "
            f"of one of the types {', '.join(_FAMILIES)}")
    replacements: Dict[type, Optional[Tuple[str, Callable[..., Tensor]]]] = {}
    unknown = set()
    for module in model.modules():
        kind = type(module)
        if kind.__module__ == modeling or kind is NewGELUActivation:
            if kind not in replacements:
                try:
                    replacements[kind] = _replacement(module)
                except LookupError:
                    replacements[kind] = unknown.add(kind.__name__)
            if replacements[kind]:
                _set_method(module, *replacements[kind])
    for suffix, next_tokens in _LOSSES.items():
        if type(model).__module__ == modeling and type(model).__name__.endswith(suffix):
            try:
                _set_loss(model, next_tokens)
            except LookupError:
                unknown.add(type(model).__name__)
    if unknown:
        warnings.warn(
            f"swamp_torch.transformers.apply: {', '.join(sorted(unknown))} of "
            f"transformers {transformers.__version__} computes what swamp does not "
            "know, and is left alone", stacklevel=2)
    return model
