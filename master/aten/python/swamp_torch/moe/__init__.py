"""Mixtures of experts, for CPU tensors: routing, capacity, permutation of the
tokens by expert, and the router's losses.

The results are those of Megatron-LM's ``megatron.core.transformer.moe`` and of
MindFormers. If those leave an order open, it is stated here: of equal scores the
lowest expert, of equal probabilities the lowest token. Sums are float32 in the
order of the experts, with one rounding; everything has the same bits on any
number of threads. ``route``, ``mindformers_route``, ``permute``, ``unpermute``,
``aux_loss`` and ``z_loss`` have gradients. ``unpermute`` has Megatron-LM's results in
float32; its 16-bit probabilities or sums round more often. The drop policy "probs"
runs on one thread.

Compared with megatron-core 0.16.1 and with Megatron-LM's commit d98e8a64 of August
2026, which needs triton as well (``toolchain/check --clients=megatron-core release -R
package_moe``, with ``MEGATRON_LM=FOLDER`` that of a checkout); sqrt(softplus) and
float32 scores of sigmoid are those of the commit. MindFormers was read at the commits
fd4deebc and f52743ca; it needs MindSpore and was not run.

``python -m swamp_torch.moe report`` shows the tokens of each expert by layer and step.
"""

import json
import math
from typing import Any, Literal, NamedTuple, Optional, Sequence, Tuple, Union, get_args

import torch
from torch import Tensor

from .. import functional
from .._optimizer_checks import index_of

_ops = functional._ops
ScoreFunction = Literal["softmax", "sigmoid", "sqrtsoftplus"]


def _require_choice(logits: Tensor, topk: int) -> None:
    if logits.dim() != 2:
        raise ValueError(f"logits: got the shape {tuple(logits.shape)}, expected "
                         "[tokens, experts]")
    if not 1 <= topk <= logits.size(-1):
        raise ValueError(f"topk: got {topk}, expected 1 to {logits.size(-1)}, "
                         "the number of experts")


def _require_groups(experts: int, topk: int, num_groups: Optional[int],
                    group_topk: Optional[int]) -> None:
    if num_groups is None or group_topk is None:
        raise ValueError(f"num_groups, group_topk: got {num_groups}, {group_topk}, "
                         "expected both or neither")
    if num_groups < 1 or experts % num_groups != 0:
        raise ValueError(f"num_groups: got {num_groups}, expected a divisor of "
                         f"{experts}, the number of experts")
    size = experts // num_groups
    if not 1 <= group_topk <= min(topk, num_groups) or topk > group_topk * size:
        raise ValueError(
            f"group_topk: got {group_topk}, expected 1 to {min(topk, num_groups)}, "
            f"the least of topk and num_groups, and at least {topk} experts in as "
            f"many groups of {size}")


def _outside_groups(scores: Tensor, topk: int, num_groups: int,
                    group_topk: int) -> Tensor:
    """Whether an expert is not in one of the token's `group_topk` groups: those
    of the highest sums of their topk / group_topk highest scores."""
    groups = scores.unflatten(-1, (num_groups, -1))
    best = groups.sort(dim=-1, descending=True)[0][..., :topk // group_topk]
    order = best.sum(dim=-1).argsort(dim=-1, descending=True, stable=True)
    outside = torch.ones_like(order, dtype=torch.bool).scatter(
        1, order[:, :group_topk], False)
    return outside.repeat_interleave(scores.size(-1) // num_groups, dim=-1)


def route(logits: Tensor, topk: int, *, score_function: ScoreFunction = "softmax",
          pre_softmax: bool = False, num_groups: Optional[int] = None,
          group_topk: Optional[int] = None,
          scaling_factor: Optional[float] = None,
          expert_bias: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The experts of each token and their probabilities: Megatron-LM's
    ``topk_routing_with_score_function``, in float32 with one rounding to the
    dtype of logits at the end. (Its releases until 0.16 round the scores of
    "sigmoid" as well.)

    Args:
        logits: [tokens, experts].
        topk: experts of a token.
        score_function: "softmax", "sigmoid" or "sqrtsoftplus", which is
            sqrt(log(1 + exp(logits))).
        pre_softmax: whether softmax is computed over all experts, before the
            choice, or over the chosen ones.
        num_groups: of experts, of the same size. A token's experts are in
            group_topk of them: those of the highest sums of their
            topk // group_topk highest scores; of equal sums the lowest group.
            None: any expert.
        group_topk: groups of a token, at most topk.
        scaling_factor: of the probabilities.
        expert_bias: [experts], added to the scores of "sigmoid" and
            "sqrtsoftplus" for the choice alone.

    Returns:
        The probabilities [tokens, experts], of the dtype of logits and 0 for
        experts that are not chosen, and the routing map, bool.
    """
    _require_choice(logits, topk)
    index_of("score_function", score_function, get_args(ScoreFunction))
    if num_groups is not None or group_topk is not None:
        _require_groups(logits.size(-1), topk, num_groups, group_topk)

    def choose(scores: Tensor) -> Tuple[Tensor, Tensor]:
        if num_groups is not None and group_topk is not None:
            outside = _outside_groups(scores.detach(), topk, num_groups, group_topk)
            scores = scores.masked_fill(outside, -torch.inf)
        values, experts = scores.sort(dim=-1, descending=True, stable=True)
        return values[:, :topk], experts[:, :topk]

    if score_function == "softmax":
        if expert_bias is not None:
            raise ValueError("expert_bias: got a tensor, expected None with "
                             "softmax")
        if pre_softmax:
            probs, experts = choose(functional.scaled_softmax(logits.float()))
        else:
            scores, experts = choose(logits)
            probs = functional.scaled_softmax(scores.float())
    else:
        if score_function == "sigmoid":
            scores = torch.sigmoid(logits.float())
        else:
            scores = torch.nn.functional.softplus(logits.float()).sqrt()
        if expert_bias is not None:
            _, experts = choose(scores + expert_bias.float())
            scores = scores.gather(1, experts)
        else:
            scores, experts = choose(scores)
        probs = scores
        if topk > 1:
            probs = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)
    if scaling_factor:
        probs = probs * scaling_factor
    routing_probs = torch.zeros_like(logits).scatter(1, experts,
                                                     probs.type_as(logits))
    routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(
        1, experts, True)
    return routing_probs, routing_map


class Routes(NamedTuple):
    """What :func:`mindformers_route` returns."""
    expert_index: Tensor  #: [tokens, topk] int64, in the order of the choices
    positions: Tensor     #: [tokens, topk] int32, in the expert; -1: dropped
    weights: Tensor       #: [tokens, topk] float32, 0 for dropped entries
    aux_loss: Tensor      #: float32
    counts: Tensor        #: [experts] int64, as MindFormers saves them


def mindformers_route(logits: Tensor, topk: int, capacity: int) -> Routes:
    """MindFormers' TopkRouter (``TopkRouterV1``) for one group of tokens: `topk`
    rounds, in which each token chooses the expert of its highest probability; of
    equal ones the lowest.

    Experts that a token has are not chosen again; one that dropped it is, and
    drops it again. The weights are the probabilities of the experts that keep the
    token, divided by their sum + 1e-9. The auxiliary loss is the sum over the
    rounds of E * sum_e f_e * P_e: f_e is the fraction of the tokens that choose
    expert e, and P_e the mean of its probabilities, divided by the sum of those
    that are left + 1e-9. MindFormers takes the mean of this over the groups. The
    weights and the loss have gradients.

    Args:
        logits: [tokens, experts].
        topk: experts of a token.
        capacity: the most tokens of an expert; see :func:`mindformers_capacity`.

    Returns:
        Routes. Its counts are what ``save_token_distribution`` writes in the last
        round and ``ColdHotExpertMonitor`` reads: the tokens that were kept in the
        rounds before, and those that choose the expert in the last round, without
        the last token.
    """
    _require_choice(logits, topk)
    experts = logits.size(1)
    tokens = max(1, logits.size(0))
    probs = functional.scaled_softmax(logits.float())
    taken = torch.zeros(experts, dtype=torch.int64)
    counts = taken
    loss = probs.new_zeros(())
    chosen, at, gates = [], [], []
    for _ in range(topk):
        index = probs.argmax(dim=-1, keepdim=True)
        left = probs / (probs.sum(dim=-1, keepdim=True) + 1e-9)
        loss = loss + aux_loss(left, histogram(index, experts), tokens, 1, 1.0)
        counts = taken + histogram(index, experts, mode="mindformers")
        position = positions(index, experts) + taken[index]
        kept = position < capacity
        chosen.append(index)
        at.append(position.where(kept, -1).int())
        gates.append(probs.gather(1, index) * kept)
        taken = taken + histogram(index.masked_fill(~kept, -1), experts)
        probs = probs * torch.ones_like(probs).scatter(1, index, (~kept).float())
    weights = torch.cat(gates, dim=1)
    weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)
    return Routes(torch.cat(chosen, dim=1), torch.cat(at, dim=1), weights, loss,
                  counts)


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


def cold_hot_capacity(experts: int, hot_experts: Tensor, capacity: int,
                      cold_token_percent: float) -> Tensor:
    """MindFormers' capacity of each expert, int64: `capacity` for hot experts,
    int(capacity * cold_token_percent) for the others. It is a capacity for
    :func:`positions`. MindFormers routes with `capacity` for all and computes
    nothing for the tokens of cold experts beyond theirs: of its routes, those
    with ``positions < limits[expert_index]`` are left, with the same weights.

    Args:
        experts: their number.
        hot_experts: as :func:`hot_experts` returns them.
        capacity: of a hot expert.
        cold_token_percent: above 0 and at most 1.
    """
    if not 0.0 < cold_token_percent <= 1.0:
        raise ValueError("'cold_token_percent' must be in the range (0.0, 1.0], "
                         f"but got {cold_token_percent}.")
    limits = torch.full((experts,), int(capacity * cold_token_percent))
    limits[hot_experts] = capacity
    return limits


def hot_experts(counts: Tensor, number: int) -> Tensor:
    """The experts of the highest counts, of equal ones the lowest; in ascending
    order, int64: ``hot_expert_index`` of MindFormers' ``ColdHotExpertMonitor``.

    Args:
        counts: [experts], of :func:`mindformers_route`, or any others.
        number: of hot experts.
    """
    if not 0 <= number <= counts.numel():
        raise ValueError(f"number: got {number}, expected 0 to {counts.numel()}, "
                         "the number of experts")
    order = counts.argsort(descending=True, stable=True)
    return order[:number].sort()[0]


def updates_hot_experts(step: int, update_step: int = 10000,
                        save_checkpoint_steps: Optional[int] = None) -> bool:
    """Whether MindFormers' ``ColdHotExpertMonitor`` changes the hot experts after
    this step, the first of which is 1: at powers of two below update_step, at the
    step save_checkpoint_steps, and at multiples of update_step; never if
    update_step is not above 0."""
    if update_step <= 0:
        return False
    return (step < update_step and step & (step - 1) == 0
            ) or step == save_checkpoint_steps or step % update_step == 0


class ExpertLoad:
    """The running mean of the tokens of each expert that MindFormers prints with
    ``print_expert_load``. In the mean, the steps before the last 100 weigh
    less: mean = (mean * steps + counts) / (steps + 1), with `steps` at most 100.
    """

    def __init__(self, experts: int) -> None:
        self.mean = torch.zeros(experts)  #: float32
        self.steps = 0

    def update(self, counts: Tensor) -> None:
        """Adds the counts of a step."""
        self.mean = (self.mean * self.steps + counts) / (self.steps + 1)
        self.steps = min(self.steps + 1, 100)

    def line(self, step: int, layer: int, local_experts: int, *, rank: int = 0,
             dp: int = 0, pp: int = 0, tp: int = 0, ep: int = 0) -> str:
        """MindFormers' line of the log, about the sums of the means of each
        device, which has `local_experts` experts. The other arguments are the
        numbers of the rank and of its groups."""
        load = self.mean.view(-1, local_experts).sum(dim=-1)
        return (f"[expert load] iter {step}: rank {rank} dp {dp} pp {pp} tp {tp} "
                f"ep {ep}, layer {layer}, load: min {load.min().item():.2f}, "
                f"max {load.max().item():.2f}, "
                f"std {load.double().std(correction=0).item():.2f}, "
                f"details {load.long().tolist()}")


def histogram(expert_index: Tensor, experts: Optional[int] = None, *,
              mode: Literal["exact", "mindformers"] = "exact") -> Tensor:
    """The number of tokens of each expert, int64.

    Args:
        expert_index: expert numbers, int32 or int64, -1 for none, with a token a
            row; or a routing map [tokens, experts], bool.
        experts: the number of experts; for a map it is known.
        mode: "exact", or "mindformers", whose counts miss the last token,
            because they are the last row of an exclusive sum.
    """
    index_of("mode", mode, ("exact", "mindformers"))
    if mode == "mindformers":
        expert_index = expert_index[:-1]
    return _ops.moe_histogram(expert_index, _experts(expert_index, experts))


def _is_map(expert_index: Tensor) -> bool:
    return expert_index.dtype in (torch.bool, torch.uint8)


def _experts(expert_index: Tensor, experts: Optional[int]) -> int:
    if experts is not None:
        return experts
    if not _is_map(expert_index):
        raise ValueError("experts: got None, expected the number of experts")
    return expert_index.size(-1)


def positions(expert_index: Tensor, experts: Optional[int] = None,
              capacity: Union[int, Tensor] = -1, *,
              order: Literal["token", "choice"] = "token") -> Tensor:
    """The position of each entry within its expert, int32: the number of earlier
    entries of the expert; -1 if that is not below the capacity or the entry is
    none. An entry is kept if its position is not negative.

    Args:
        expert_index: as of :func:`histogram`.
        experts: the number of experts; for a map it is known.
        capacity: the most tokens of an expert, or a tensor [experts] of integers;
            -1: no limit.
        order: of expert numbers [tokens, topk]: "token", all choices of a token
            before those of the next one (MindFormers' "sdrop"), or "choice", all
            first choices before the second ones (MindFormers' TopkRouter and
            "kdrop"). MindFormers' TopkRouterV2 counts from 1, with 0 for dropped
            tokens: the position + 1.
    """
    index_of("order", order, ("token", "choice"))
    is_map = _is_map(expert_index)
    if order == "choice" and is_map:
        raise ValueError("order: got 'choice' with a map, expected 'token', "
                         "because a map has no order of choices")
    count = _experts(expert_index, experts)
    limit = -1 if isinstance(capacity, Tensor) else capacity
    result: Tensor
    if order == "token":
        result = _ops.moe_positions(expert_index, count, limit)
    else:
        result = _ops.moe_positions(expert_index.t(), count, limit).t()
    if isinstance(capacity, Tensor):
        if capacity.shape != (count,):
            raise ValueError(f"capacity: got the shape {tuple(capacity.shape)}, "
                             f"expected [{count}]")
        mine = capacity if is_map else capacity[expert_index.clamp(min=0).long()]
        result = result.masked_fill((mine >= 0) & (result >= mine), -1)
    return result


def apply_capacity(probs: Tensor, routing_map: Tensor, capacity: int, *,
                   drop_policy: Literal["probs", "position"] = "probs",
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
    index_of("drop_policy", drop_policy, ("probs", "position"))
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
    return _ops.moe_permutation(routing_map, at, experts, rows, per_expert)


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
    return _ops.moe_unpermute(permuted_tokens, sorted_indices, factors,
                              restore_shape[0])


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
    return _ops.moe_aux_loss(probs, tokens_per_expert.long(),
                             total_num_tokens, topk, coeff)


def z_loss(logits: Tensor, coeff: float) -> Tensor:
    """coeff * mean(log(sum(exp(logits)))^2), Megatron-LM's ``z_loss_func``;
    float32.

    Args:
        logits: [tokens, experts].
        coeff: factor of the loss.
    """
    return _ops.moe_z_loss(logits, coeff)[0]


def write_counts(file: Any, step: int, layer: int, counts: Tensor,
                 dropped: Optional[int] = None) -> None:
    """Writes the tokens of each expert as a line of JSON, for
    ``python -m swamp_torch.moe report``.

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


from ._hot import HotExperts as HotExperts  # noqa: E402 it uses these functions
