"""Modules of :mod:`swamp_torch.functional`, with the signatures of torch.nn and
Megatron-LM."""

from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import functional


class _ZeroCentered:
    """What LayerNorm and RMSNorm add to PyTorch's modules."""

    weight: Any

    def __init__(self, *args: Any, zero_centered_weight: bool = False,
                 **kwargs: Any) -> None:
        self.zero_centered_weight = zero_centered_weight
        super().__init__(*args, **kwargs)

    def reset_parameters(self) -> None:
        super().reset_parameters()  # type: ignore[misc]
        if self.zero_centered_weight and self.weight is not None:
            torch.nn.init.zeros_(self.weight)

    def _factor(self) -> Optional[Tensor]:
        """The factor of the normalized rows."""
        if self.weight is None or not self.zero_centered_weight:
            return self.weight
        return self.weight.float() + 1


class LayerNorm(_ZeroCentered, torch.nn.LayerNorm):
    """:class:`torch.nn.LayerNorm`; see :func:`functional.layer_norm`.

    Args:
        zero_centered_weight: whether 1 is added to the weight, whose initial
            value is then 0 ("zero-centered gamma").
        The others are those of :class:`torch.nn.LayerNorm`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape,
                                     self._factor(), self.bias, self.eps)


class RMSNorm(_ZeroCentered, torch.nn.RMSNorm):
    """:class:`torch.nn.RMSNorm`; see :func:`functional.rms_norm`.

    Args:
        zero_centered_weight: see :class:`LayerNorm`.
        The others are those of :class:`torch.nn.RMSNorm`.
    """

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self._factor(),
                                   self.eps)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """:class:`torch.nn.CrossEntropyLoss` of class indices, with a float32 loss;
    see :func:`functional.cross_entropy`.

    Args:
        z_loss: see :func:`functional.cross_entropy`.
        The others are those of :class:`torch.nn.CrossEntropyLoss`.
    """

    def __init__(self, *args: Any, z_loss: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.z_loss = z_loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input, target, self.weight, ignore_index=self.ignore_index,
            reduction=self.reduction,  # type: ignore[arg-type]
            label_smoothing=self.label_smoothing, z_loss=self.z_loss)


class FusedScaleMaskSoftmax(torch.nn.Module):
    """Megatron-LM's FusedScaleMaskSoftmax: scale, mask and softmax of attention
    scores.

    Args:
        input_in_fp16: whether the scores are float16.
        input_in_bf16: whether the scores are bfloat16.
        attn_mask_type: Megatron-LM's AttnMaskType, or the name of a member;
            "causal" masks the columns after the row's index.
        scaled_masked_softmax_fusion: whether swamp's operators compute it, for
            all shapes; otherwise it is computed as in Megatron-LM's unfused
            path.
        mask_func: mask_func(scores, mask), only for the unfused path.
        softmax_in_fp32: only for the unfused path; swamp's is always float32.
        scale: a factor, None for 1.
        window_size: (left, right): row i counts the columns from i - left to
            i + right; None: all, or those that attn_mask_type gives.
    """

    def __init__(self, input_in_fp16: bool, input_in_bf16: bool,
                 attn_mask_type: Any, scaled_masked_softmax_fusion: bool,
                 mask_func: Optional[Callable[[Tensor, Tensor], Tensor]],
                 softmax_in_fp32: bool, scale: Optional[float],
                 window_size: Optional[Tuple[int, int]] = None) -> None:
        super().__init__()
        assert not (input_in_fp16 and input_in_bf16), \
            "both fp16 and bf16 flags cannot be active at the same time."
        assert scale is None or softmax_in_fp32, \
            "softmax should be in fp32 when scaled"
        self.input_in_float16 = input_in_fp16 or input_in_bf16
        self.half = torch.float16 if input_in_fp16 else torch.bfloat16
        self.causal = getattr(attn_mask_type, "name", attn_mask_type) == "causal"
        self.scaled_masked_softmax_fusion = scaled_masked_softmax_fusion
        self.mask_func = mask_func
        self.softmax_in_fp32 = softmax_in_fp32
        self.scale = scale
        self.window_size = window_size

    def forward(self, input: Tensor, mask: Optional[Tensor] = None,
                softmax_offset: Optional[Tensor] = None) -> Tensor:
        """
        Args:
            input: [b, np, sq, sk].
            mask: [b or 1, 1, sq, sk], True: masked. Ignored if causal or with a
                window.
            softmax_offset: [np], the score of one more column, which is left out
                of the result; computed by the unfused path.
        """
        assert input.dim() == 4
        sq, sk = input.shape[2:]
        if self.window_size is not None:
            left, right = self.window_size
            kept = torch.ones(sq, sk, dtype=torch.bool)
            kept = kept.triu(sk - sq - left).tril(sk - sq + right)
            mask = ~kept.view(1, 1, sq, sk)
        if not self.scaled_masked_softmax_fusion or softmax_offset is not None:
            return self._unfused(input, mask, softmax_offset)
        scale = 1.0 if self.scale is None else self.scale
        if self.window_size is not None:
            assert mask is not None
            return functional.scaled_masked_softmax(input, mask, scale)
        if self.causal and sq > 1:
            assert sq == sk, "causal mask is only for self attention"
            return functional.scaled_upper_triang_masked_softmax(input, scale)
        if mask is not None and not self.causal:
            return functional.scaled_masked_softmax(input, mask, scale)
        return functional.scaled_softmax(input, scale)

    def _unfused(self, scores: Tensor, mask: Optional[Tensor],
                 offset: Optional[Tensor]) -> Tensor:
        if self.input_in_float16 and self.softmax_in_fp32:
            scores = scores.float()
        if self.scale is not None:
            scores = scores * self.scale
        if self.causal and mask is None and scores.size(2) > 1:
            mask = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        if mask is not None:
            scores = (scores.masked_fill(mask, -10000.0)
                      if self.mask_func is None else self.mask_func(scores, mask))
        if offset is not None:
            column = offset.reshape(1, -1, 1, 1).expand(
                scores.size(0), -1, scores.size(2), 1)
            scores = torch.cat([scores, column], -1)
        result = scores.softmax(-1)
        if offset is not None:
            result = result[..., :-1]
        if self.input_in_float16 and self.softmax_in_fp32:
            result = result.to(self.half)
        return result


__all__: Sequence[str] = ("CrossEntropyLoss", "FusedScaleMaskSoftmax",
                          "LayerNorm", "RMSNorm")
