"""swamp's operators in models of Hugging Face's transformers, for CPUs.

Needs the package ``transformers``, so it is imported when it is first used::

    from swamp_torch.transformers import apply
    model = apply(AutoModelForCausalLM.from_pretrained(...))
"""

import dataclasses
import functools
import importlib
import inspect
import types
from typing import Any, Callable, Dict, Optional, Tuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import modeling_outputs
from transformers.activations import NewGELUActivation
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.utils.generic import can_return_tuple

from . import functional

Model = TypeVar("Model", bound=torch.nn.Module)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# config.model_type, and how the names of its classes begin.
_FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
             "qwen3": "Qwen3", "gpt2": "GPT2", "bert": "Bert"}
# How the names of classes with a loss end, and the class of their outputs.
_OUTPUTS = {"ForCausalLM": modeling_outputs.CausalLMOutputWithPast,
            "LMHeadModel": modeling_outputs.CausalLMOutputWithCrossAttentions,
            "ForMaskedLM": modeling_outputs.MaskedLMOutput}


def _rms_norm(self: Any, hidden_states: Tensor) -> Tensor:
    """transformers round the normalised row to the dtype of the input and multiply
    it by the weight after that; functional.rms_norm() rounds only the product."""
    x = hidden_states
    if x.dtype not in _DTYPES or x.device.type != "cpu":
        return type(self).forward(self, x)  # type: ignore[no-any-return]
    one = x.dtype == self.weight.dtype == torch.float32
    y = functional.rms_norm(x, x.size(-1), self.weight if one else None,
                            self.variance_epsilon)
    return y if one else self.weight * y


class _SwiGlu(torch.autograd.Function):
    """silu(gate) * up, with the bits of these two operators. The backward pass
    computes silu(gate) again, so that it need not be kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up

    @staticmethod
    def setup_context(ctx: Any, inputs: Tuple[Tensor, Tensor],
                      output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return (torch.ops.aten.silu_backward(grads[0] * up, gate),
                grads[0] * F.silu(gate))


def _swiglu_mlp(self: Any, x: Tensor) -> Tensor:
    y = _SwiGlu.apply(self.gate_proj(x), self.up_proj(x))  # type: ignore
    return self.down_proj(y)  # type: ignore[no-any-return]


def _gelu_tanh(self: Any, input: Tensor) -> Tensor:
    """One operator that rounds once, instead of 8 that round."""
    return F.gelu(input, approximate="tanh")


def _set_forward(module: torch.nn.Module, ours: Callable[..., Any]) -> None:
    """Leaves a module alone that has a forward() of its own: this one, or one of
    accelerate's hooks. pickle looks a method up by its name, and finds the class's."""
    if "forward" not in vars(module):
        ours.__name__ = "forward"
        module.forward = types.MethodType(ours, module)


def _computes_loss(model: Any, causal: bool) -> bool:
    """Whether the model's head and loss are those of _loss()."""
    head = model.get_output_embeddings()
    return (type(head) is torch.nn.Linear and not head._forward_hooks
            and not head._forward_pre_hooks and head.weight.device.type == "cpu"
            and head.weight.dtype in _DTYPES
            and (not causal or model.loss_function is ForCausalLMLoss))


def _loss(head: torch.nn.Linear, hidden: Tensor, target: Tensor,
          skip_logits: bool, num_items_in_batch: Any,
          ignore_index: int) -> Tuple[Tensor, Optional[Tensor]]:
    """The loss and, if they are not skipped, the logits."""
    reduction: functional.Reduction = (
        "mean" if num_items_in_batch is None else "sum")
    logits = None if skip_logits else head(hidden)
    target = target.flatten()
    if logits is not None:
        loss = functional.cross_entropy(
            logits.flatten(0, -2), target, ignore_index=ignore_index,
            reduction=reduction)
    else:
        rows = hidden.flatten(0, -2)
        if not torch.compiler.is_compiling():  # their number is in the data
            counts = target != ignore_index
            if int(counts.sum()) < 0.9 * target.numel():
                rows, target = rows[counts], target[counts]
        loss = functional.linear_cross_entropy(
            rows, head.weight, target, head.bias, ignore_index=ignore_index,
            reduction=reduction)
    if num_items_in_batch is not None:
        loss = loss / num_items_in_batch
    return loss, logits


def _set_loss(model: Any, output: type, causal: bool) -> None:
    """Sets the forward() of a model with a loss of its vocabulary."""
    stock = type(model).forward
    names = list(inspect.signature(stock).parameters)[1:]
    fields = [field.name for field in dataclasses.fields(output)
              if field.name not in ("loss", "logits")]

    @functools.wraps(stock)
    @can_return_tuple  # type: ignore[untyped-decorator, unused-ignore]
    def forward(self: Any, *args: Any, skip_logits: Optional[bool] = None,
                **kwargs: Any) -> Any:
        kwargs.update(zip(names, args))
        keep = kwargs.get("logits_to_keep", 0)
        if (kwargs.get("labels") is None or isinstance(keep, Tensor) or keep
                or not _computes_loss(self, causal)):
            return stock(self, return_dict=True, **kwargs)
        target = kwargs.pop("labels")
        kwargs.pop("logits_to_keep", None)
        items, ignored = None, -100
        if causal:  # what the loss function of transformers takes
            items = kwargs.get("num_items_in_batch")
            ignored = kwargs.get("ignore_index", ignored)
            shifted = kwargs.get("shift_labels")
            if shifted is None:
                shifted = F.pad(target, (0, 1), value=ignored)[..., 1:]
            target = shifted
        if self.base_model_prefix == "bert":
            kwargs["use_cache"] = False
        outputs = self.base_model(return_dict=True, **kwargs)
        hidden = outputs.last_hidden_state
        if self.base_model_prefix == "bert":
            hidden = self.cls.predictions.transform(hidden)
        loss, logits = _loss(
            self.get_output_embeddings(), hidden, target,
            self.training if skip_logits is None else skip_logits, items, ignored)
        return output(loss=loss, logits=logits,
                      **{name: getattr(outputs, name, None) for name in fields})

    _set_forward(model, forward)


def apply(model: Model) -> Model:
    """Makes a model of transformers use swamp's operators: LLaMA, Mistral, Qwen2,
    Qwen3, GPT-2 and BERT, with any head. What Liger-Kernel's
    ``apply_liger_kernel_to_llama`` does on GPUs, for one model.

    ======================================  =====================================
    *RMSNorm                                :func:`functional.rms_norm`; 16-bit
                                            rows are rounded before they are
                                            multiplied by the weight, as in
                                            transformers
    *MLP with silu                          silu(gate) is computed again in the
                                            backward pass, with the same bits
    gelu_new, as in GPT-2                   one operator and one rounding
    *ForCausalLM, *LMHeadModel and          with ``labels``,
    BertForMaskedLM                         :func:`functional.linear_cross_entropy`
    ======================================  =====================================

    In training, ``logits`` of the output is then None. ``forward`` takes one more
    argument, as with Liger-Kernel: ``skip_logits``, None for ``model.training``.
    If the logits are not skipped, :func:`functional.cross_entropy` takes them
    without a float32 copy. If the labels of more than a tenth of the rows are
    ignored, those rows are not multiplied (not under ``torch.compile``). A head
    that is not a plain ``torch.nn.Linear`` on a CPU (LoRA's, float8's), one with
    hooks, or another loss function is computed by transformers.

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
    family = getattr(getattr(model, "config", None), "model_type", None)
    base = None
    if isinstance(family, str) and family in _FAMILIES:
        prefix = _FAMILIES[family]
        modeling = importlib.import_module(
            f"transformers.models.{family}.modeling_{family}")
        base = getattr(modeling, prefix + "PreTrainedModel")
    if base is None or not isinstance(model, base):
        raise TypeError(
            f"model: got {type(model).__name__}, expected a model of transformers "
            f"of one of the types {', '.join(_FAMILIES)}")
    replaced: Dict[Any, Callable[..., Tensor]] = {NewGELUActivation: _gelu_tanh}
    if hasattr(modeling, prefix + "RMSNorm"):
        replaced[getattr(modeling, prefix + "RMSNorm")] = _rms_norm
        if model.config.hidden_act in ("silu", "swish"):
            replaced[getattr(modeling, prefix + "MLP")] = _swiglu_mlp
    for module in model.modules():
        if type(module) in replaced:
            _set_forward(module, replaced[type(module)])
    for suffix, output in _OUTPUTS.items():
        if type(model) is getattr(modeling, prefix + suffix, None):
            _set_loss(model, output, suffix != "ForMaskedLM")
    return model
