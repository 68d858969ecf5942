"""Mixtures of experts, for CPU tensors: routing, capacity, permutation of the
tokens by expert, and the router's losses.

The results are those of Megatron-LM's ``megatron.core.transformer.moe`` and of
MindFormers. If those leave an order open, it is stated here: of equal scores the
lowest expert, of equal probabilities the lowest token. Sums are float32 in the
order of the experts, with one rounding; everything has the same bits on any
number of threads. ``route``, ``permute``, ``unpermute``, ``aux_loss`` and
``z_loss`` have gradients.
"""

import json
import math
from typing import Any, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from . import functional

_ops = torch.ops.swamp


def route(logits: Tensor, topk: int, *, score_function: str = "softmax",
          pre_softmax: bool = False, scaling_factor: Optional[float] = None,
          expert_bias: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The experts of each token and their probabilities: Megatron-LM's
    ``topk_routing_with_score_function`` without groups.

    Args:
        logits: [tokens, experts].
        topk: experts of a token.
        score_function: "softmax" or "sigmoid".
        pre_softmax: whether softmax is computed over all experts, before the
            choice, or over the chosen ones.
        scaling_factor: of the probabilities.
        expert_bias: [experts], added to the scores of "sigmoid" for the choice
            alone.

    Returns:
        The probabilities [tokens, experts], of the dtype of logits and 0 for
        experts that are not chosen, and the routing map, bool.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits: got the shape {tuple(logits.shape)}, expected "
                         "[tokens, experts]")
    if not 1 <= topk <= logits.size(-1):
        raise ValueError(f"topk: got {topk}, expected 1 to {logits.size(-1)}, "
                         "the number of experts")

    def choose(scores: Tensor) -> Tuple[Tensor, Tensor]:
        values, experts = scores.sort(dim=-1, descending=True, stable=True)
        return values[:, :topk], experts[:, :topk]

    if score_function == "softmax":
        if expert_bias is not None:
            raise ValueError("expert_bias: got a tensor, expected None with "
                             "softmax")
        if pre_softmax:
            probs, experts = choose(functional.scaled_softmax(logits))
        else:
            scores, experts = choose(logits)
            probs = functional.scaled_softmax(scores)
    elif score_function == "sigmoid":
        scores = torch.sigmoid(logits.float()).type_as(logits)
        if expert_bias is not None:
            _, experts = choose(scores + expert_bias)
            scores = scores.gather(1, experts)
        else:
            scores, experts = choose(scores)
        probs = scores
        if topk > 1:
            probs = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)
    else:
        raise ValueError(f"score_function: got {score_function!r}, expected "
                         "'softmax' or 'sigmoid'")
    if scaling_factor:
        probs = probs * scaling_factor
    routing_probs = torch.zeros_like(logits).scatter(1, experts,
                                                     probs.type_as(logits))
    routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(
        1, experts, True)
    return routing_probs, routing_map


def updated_expert_bias(tokens_per_expert: Tensor, expert_bias: Tensor,
                        rate: float) -> Tensor:
    """The bias of experts with fewer tokens than the mean goes up by `rate`, that
    of the others down."""
    counts = tokens_per_expert.float()
    offset = counts.mean(dim=-1, keepdim=True) - counts
    return expert_bias + offset.sign() * rate


def capacity(tokens: int, topk: int, experts: int, factor: float,
             min_capacity: Optional[int] = None) -> int:
    """Megatron-LM's capacity of an expert: ceil(tokens * topk / experts *
    factor), at least min_capacity."""
    result = math.ceil((tokens * topk / experts) * factor)
    return result if min_capacity is None else max(result, min_capacity)


def mindformers_capacity(tokens_per_group: int, topk: int, experts: int,
                         factor: float) -> int:
    """MindFormers' capacity of an expert: ceil(topk * tokens_per_group * factor /
    experts), for a factor of at least 1."""
    if factor < 1.0:
        raise ValueError("'capacity_factor' must be equal to or greater than "
                         f"1.0, but got {factor}.")
    return math.ceil(topk * tokens_per_group * factor / experts)


def histogram(expert_index: Tensor, experts: Optional[int] = None, *,
              mode: str = "exact") -> Tensor:
    """The number of tokens of each expert, int64.

    Args:
        expert_index: expert numbers, int32 or int64, -1 for none, with a token a
            row; or a routing map [tokens, experts], bool.
        experts: the number of experts; for a map it is known.
        mode: "exact", or "mindformers", whose counts miss the last token,
            because they are the last row of an exclusive sum.
    """
    if mode not in ("exact", "mindformers"):
        raise ValueError(f"mode: got {mode!r}, expected 'exact' or "
                         "'mindformers'")
    if mode == "mindformers":
        expert_index = expert_index[:-1]
    counts: Tensor = _ops.moe_histogram(expert_index,
                                        _experts(expert_index, experts))
    return counts


def _is_map(expert_index: Tensor) -> bool:
    return expert_index.dtype in (torch.bool, torch.uint8)


def _experts(expert_index: Tensor, experts: Optional[int]) -> int:
    if experts is not None:
        return experts
    if not _is_map(expert_index):
        raise ValueError("experts: got None, expected the number of experts")
    return expert_index.size(-1)


def positions(expert_index: Tensor, experts: Optional[int] = None,
              capacity: int = -1, *, order: str = "token") -> Tensor:
    """The position of each entry within its expert, int32: the number of earlier
    entries of the expert; -1 if that is not below the capacity or the entry is
    none. An entry is kept if its position is not negative.

    Args:
        expert_index: as of :func:`histogram`.
        experts: the number of experts; for a map it is known.
        capacity: the most tokens of an expert; -1: no limit.
        order: of expert numbers [tokens, topk]: "token", all choices of a token
            before those of the next one (MindFormers' "sdrop"), or "choice", all
            first choices before the second ones (MindFormers' TopkRouter and
            "kdrop"). MindFormers' TopkRouterV2 counts from 1, with 0 for dropped
            tokens: the position + 1.
    """
    if order not in ("token", "choice"):
        raise ValueError(f"order: got {order!r}, expected 'token' or 'choice'")
    if order == "choice" and _is_map(expert_index):
        raise ValueError("order: got 'choice' with a map, expected 'token', "
                         "because a map has no order of choices")
    count = _experts(expert_index, experts)
    result: Tensor
    if order == "token":
        result = _ops.moe_positions(expert_index, count, capacity)
    else:
        result = _ops.moe_positions(expert_index.t(), count, capacity).t()
    return result


def apply_capacity(probs: Tensor, routing_map: Tensor, capacity: int, *,
                   drop_policy: str = "probs",
                   pad_to_capacity: bool = False) -> Tuple[Tensor, Tensor]:
    """Probabilities and map after dropping: Megatron-LM's
    ``apply_router_token_dropping``. An expert keeps the tokens of the highest
    probabilities ("probs"; of equal ones the lowest token) or the lowest tokens
    ("position"). With pad_to_capacity, other tokens, whose probability is 0, fill
    the experts in the same order. Nothing is dropped if the capacity is above the
    number of tokens.

    Args:
        probs: [tokens, experts], 0 for experts that are not chosen.
        routing_map: [tokens, experts], bool.
        capacity: the most tokens of an expert.
        drop_policy: "probs" or "position".
        pad_to_capacity: whether each expert gets exactly `capacity` tokens.
    """
    if drop_policy not in ("probs", "position"):
        raise ValueError(f"drop_policy: got {drop_policy!r}, expected 'probs' or "
                         "'position'")
    kept: Tensor = _ops.moe_apply_capacity(
        probs, routing_map, capacity, drop_policy == "probs", pad_to_capacity)
    return probs * kept, kept


def _gather(probs: Tensor, entries: Tensor) -> Tensor:
    """Elements of the flat probs; 0 for the entry -1."""
    flat = torch.cat([probs.reshape(-1), probs.new_zeros(1)])
    return flat.index_select(0, entries.masked_fill(entries < 0, probs.numel()))


def _entries(routing_map: Tensor, rows: int, drop_and_pad: bool) -> Tensor:
    experts = routing_map.size(1)
    per_expert = rows // experts if drop_and_pad else 0
    at = _ops.moe_positions(routing_map, experts,
                            per_expert if drop_and_pad else -1)
    entries: Tensor = _ops.moe_permutation(routing_map, at, experts, rows,
                                           per_expert)
    return entries


def permute(tokens: Tensor, routing_map: Tensor, probs: Optional[Tensor] = None,
            num_out_tokens: Optional[int] = None, *, drop_and_pad: bool = False
            ) -> Tuple[Tensor, Optional[Tensor], Tensor]:
    """The tokens in the order of their experts: Megatron-LM's ``permute``. Within
    an expert the tokens keep their order.

    Args:
        tokens: [tokens, hidden].
        routing_map: [tokens, experts], bool.
        probs: [tokens, experts].
        num_out_tokens: rows of the result; None: as many as the map has.
        drop_and_pad: whether each expert has num_out_tokens / experts rows.

    Returns:
        The permuted tokens, their probabilities (None without probs), and the
        token of each row, int64. A row without a token is 0, and its token is -1.
    """
    rows = num_out_tokens
    if rows is None:
        if drop_and_pad:
            raise ValueError("num_out_tokens: got None, expected a number with "
                             "drop_and_pad")
        rows = int(histogram(routing_map).sum())
    experts = routing_map.size(1)
    entries = _entries(routing_map, rows, drop_and_pad)
    token_of = torch.div(entries, experts, rounding_mode="floor")
    permuted: Tensor = _ops.moe_permute(tokens, token_of, None)
    chosen = None if probs is None else _gather(probs, entries)
    return permuted, chosen, token_of


def unpermute(permuted_tokens: Tensor, sorted_indices: Tensor,
              restore_shape: Union[torch.Size, Sequence[int]],
              probs: Optional[Tensor] = None,
              routing_map: Optional[Tensor] = None, *,
              drop_and_pad: bool = False) -> Tensor:
    """The sum of the rows of each token, times their probabilities: Megatron-LM's
    ``unpermute``. The sums are float32, in the order of the experts, and rounded
    once to the dtype of the tokens.

    Args:
        permuted_tokens: [rows, hidden].
        sorted_indices: the token of each row, as :func:`permute` returned it.
        restore_shape: [tokens, hidden].
        probs: [tokens, experts]; None: all 1.
        routing_map: as of :func:`permute`; only with probs.
        drop_and_pad: as of :func:`permute`.
    """
    factors = None
    if probs is not None:
        if routing_map is None:
            raise ValueError("routing_map: got None, expected a map with probs")
        entries = _entries(routing_map, sorted_indices.numel(), drop_and_pad)
        factors = _gather(probs, entries).float()
    result: Tensor = _ops.moe_unpermute(permuted_tokens, sorted_indices, factors,
                                        restore_shape[0])
    return result


def aux_loss(probs: Tensor, tokens_per_expert: Tensor, total_num_tokens: int,
             topk: int, coeff: float) -> Tensor:
    """The load-balancing loss, Megatron-LM's ``switch_load_balancing_loss_func``:
    coeff * E / (k * T^2) * sum_e (sum_t probs_te) * tokens_e; float32.

    Args:
        probs: [tokens, experts], the router's probabilities of all experts.
        tokens_per_expert: [experts].
        total_num_tokens: those that tokens_per_expert counts.
        topk: experts of a token.
        coeff: factor of the loss.
    """
    if total_num_tokens < 1:
        raise ValueError(f"total_num_tokens: got {total_num_tokens}, expected at "
                         "least 1")
    loss: Tensor = _ops.moe_aux_loss(probs, tokens_per_expert.long(),
                                     total_num_tokens, topk, coeff)
    return loss


def z_loss(logits: Tensor, coeff: float) -> Tensor:
    """coeff * mean(log(sum(exp(logits)))^2), Megatron-LM's ``z_loss_func``;
    float32.

    Args:
        logits: [tokens, experts].
        coeff: factor of the loss.
    """
    loss: Tensor = _ops.moe_z_loss(logits, coeff)[0]
    return loss


def write_counts(file: Any, step: int, layer: int, counts: Tensor,
                 dropped: Optional[int] = None) -> None:
    """Writes the tokens of each expert as a line of JSON, for ``swamp
    moe-report``.

    Args:
        file: a text file that is open for writing.
        step: number of the training step.
        layer: number of the layer.
        counts: as :func:`histogram` returns it, before dropping.
        dropped: how many of these were dropped, if it is known.
    """
    line = {"step": step, "layer": layer, "counts": counts.tolist()}
    if dropped is not None:
        line["dropped"] = dropped
    file.write(json.dumps(line) + "\n")
