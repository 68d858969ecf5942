"""HotExperts: experts that are divided over ranks; each rank has a copy of the hot ones."""

import copy
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from . import histogram, hot_experts, permute, unpermute


class _Exchange(torch.autograd.Function):
    """Sends rows to each rank and receives rows from each; backward the other way."""

    @staticmethod
    def forward(context: Any, rows: Tensor, anchor: Tensor, sent: List[int],
                received: List[int], group: Any) -> Tensor:
        context.arguments = anchor, received, sent, group
        bytes_of_row = rows.size(1) * rows.element_size()
        result = rows.new_empty(sum(received), rows.size(1))
        # As bytes, because backends lack all-to-all of some dtypes.
        dist.all_to_all_single(
            result.view(torch.uint8).view(-1),
            rows.contiguous().view(torch.uint8).view(-1),
            [bytes_of_row * n for n in received], [bytes_of_row * n for n in sent],
            group=group)
        return result

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> Tuple[Optional[Tensor], ...]:
        return _Exchange.apply(grads[0], *context.arguments), None, None, None, None


class HotExperts(torch.nn.Module):
    """A layer of experts, each on one rank. Those with the most tokens, the hot ones,
    have a replica on every rank, as in MindFormers: their tokens need no all-to-all.

    Rank r of R ranks has the experts from r * E / R on. The results are those of the
    layer without hot experts, but for the order of two sums: the gradients of a replica
    are added by rank, each the sum over the rank's tokens.

        experts = HotExperts([Expert() for _ in range(E // ranks)], hot=2)
        output = experts(tokens, probs, routing_map)  # as of moe.route()
        loss(output).backward()
        experts.reduce_gradients()
        optimizer.step()
        if moe.updates_hot_experts(step):
            experts.update(counts, optimizer)

    State dicts of the module have no replicas: weights are copied back first. After
    load_state_dict() no expert is hot. Before the optimizer's state is saved, call
    ``set_hot([], optimizer)``. Leave the optimizer's ``max_norm`` at 0: each rank would
    clip by its own norm, and the replicas of an expert would become different.

    Args:
        experts: this rank's, as many on each; modules of the same structure, which map
            rows to rows of the same size.
        hot: how many experts are hot at most.
        group: the ranks; None: all.

    Attributes:
        hot: the hot experts, in ascending order.
        bytes_saved: of all-to-all that this rank would have sent for tokens of hot
            experts, to the expert and back, forward and backward.
        bytes_reduced: of gradients of replicas.
    """

    def __init__(self, experts: Sequence[torch.nn.Module], hot: int,
                 group: Optional[Any] = None) -> None:
        super().__init__()
        self._group = group
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        self._count = len(experts) * self._ranks
        if not experts or not 0 <= hot <= self._count:
            raise ValueError(f"experts, hot: got {len(experts)} and {hot}, expected at "
                             f"least 1 and from 0 to {self._count}, the number of "
                             "experts")
        self.experts = torch.nn.ModuleList(experts)
        self.replicas = torch.nn.ModuleList(copy.deepcopy(experts[0])
                                            for _ in range(hot))
        self._slots: List[int] = [-1] * hot  # the expert of each replica, or -1
        self.bytes_saved = self.bytes_reduced = 0
        self.register_state_dict_pre_hook(lambda *_: self._copy_back(None))
        self._register_state_dict_hook(_drop_replicas)
        self._register_load_state_dict_pre_hook(_keep_replicas, with_module=True)

    @property
    def hot(self) -> List[int]:
        """The hot experts."""
        return sorted(expert for expert in self._slots if expert >= 0)

    def _home(self, expert: int) -> int:
        return expert // len(self.experts)

    def _own(self, expert: int) -> torch.nn.Module:
        return self.experts[expert % len(self.experts)]

    def forward(self, tokens: Tensor, probs: Tensor, routing_map: Tensor) -> Tensor:
        """The sum of the experts' results for each token, times their probabilities.

        Args:
            tokens: [tokens, hidden], of this rank.
            probs: [tokens, experts].
            routing_map: [tokens, experts], bool.
        """
        if routing_map.shape != (tokens.size(0), self._count):
            raise ValueError(f"routing_map: got the shape {tuple(routing_map.shape)}, "
                             f"expected {(tokens.size(0), self._count)}")
        rows, _, order = permute(tokens, routing_map)
        counts = histogram(routing_map)
        is_hot = torch.zeros(self._count, dtype=torch.bool)
        is_hot[self.hot] = True
        hot_rows = is_hot.repeat_interleave(counts)
        cold, hot = (~hot_rows).nonzero().view(-1), hot_rows.nonzero().view(-1)
        results = [self._cold(rows[cold], counts.masked_fill(is_hot, 0))]
        pieces = rows[hot].split(counts[self.hot].tolist())
        for expert, piece in zip(self.hot, pieces):
            if piece.size(0) == 0:
                continue
            results.append(self.replicas[self._slots.index(expert)](piece))
            if self._home(expert) != self._rank:
                passes = 4 if torch.is_grad_enabled() else 2
                self.bytes_saved += passes * piece.nbytes
        back = torch.cat([cold, hot]).argsort()
        return unpermute(torch.cat(results)[back], order, tokens.shape, probs,
                         routing_map)

    def _cold(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Sends the rows, in the order of their experts, to the experts and back."""
        local = len(self.experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self._group)
        sent = counts.view(-1, local).sum(1).tolist()
        received = theirs.view(-1, local).sum(1).tolist()
        # It requires a gradient, so that every rank takes part in backward, also one
        # whose experts got no tokens.
        anchor = torch.zeros(0, requires_grad=True)
        got = _Exchange.apply(rows, anchor, sent, received, self._group)
        expert = torch.arange(local).repeat(self._ranks).repeat_interleave(theirs)
        order = expert.argsort(stable=True)
        pieces = got[order].split(theirs.view(-1, local).sum(0).tolist())
        # Of one dtype on all ranks: autocast changes that of experts with tokens.
        results = [own(piece).to(rows.dtype) if piece.size(0) else piece
                   for own, piece in zip(self.experts, pieces)]
        return _Exchange.apply(torch.cat(results)[order.argsort()], anchor, received,
                               sent, self._group)

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        """Adds the gradients of each replica over the ranks. Collective; call it after
        the last backward pass of a step."""
        params = [p for slot, replica in zip(self._slots, self.replicas) if slot >= 0
                  for p in replica.parameters()]
        present = torch.tensor([p.grad is not None for p in params], dtype=torch.int32)
        if params:
            dist.all_reduce(present, dist.ReduceOp.MAX, group=self._group)
        for param, some in zip(params, present.tolist()):
            if not some:
                continue
            if param.grad is None:
                param.grad = torch.zeros_like(param)
            # The ranks add float32, whatever the backend does with 16 bits.
            grad = param.grad.float()
            dist.all_reduce(grad, group=self._group)
            self.bytes_reduced += grad.nbytes
            param.grad.copy_(grad)

    def update(self, counts: Tensor,
               optimizer: Optional[torch.optim.Optimizer] = None) -> None:
        """Makes those experts hot that have the most tokens of all ranks. Collective.

        Args:
            counts: [experts], the tokens of this rank.
            optimizer: as of :meth:`set_hot`.
        """
        counts = counts.clone()
        dist.all_reduce(counts, group=self._group)
        self.set_hot(hot_experts(counts, len(self._slots)).tolist(), optimizer)

    @torch.no_grad()
    def set_hot(self, experts: Sequence[int],
                optimizer: Optional[torch.optim.Optimizer] = None) -> None:
        """Makes experts hot, and no others: copies the weights of those that are no
        longer hot back to their rank, and those of new ones to all. Collective, with
        the same experts on every rank.

        Args:
            experts: at most as many as replicas.
            optimizer: that of the parameters: its state moves with the weights. Without
                it the state stays, which is that of other experts.
        """
        wanted = sorted(set(experts))
        if (len(wanted) != len(experts) or len(wanted) > len(self._slots)
                or any(not 0 <= e < self._count for e in wanted)):
            raise ValueError(f"experts: got {list(experts)}, expected at most "
                             f"{len(self._slots)} different ones below {self._count}")
        self._copy_back(optimizer, keep=wanted)
        for expert in wanted:
            if expert in self._slots:
                continue
            slot = self._slots.index(-1)
            self._slots[slot] = expert
            home = self._home(expert)
            own = list(self._own(expert).parameters())
            states: List[Any] = [None]
            if optimizer is not None and home == self._rank:
                states = [[optimizer.state.get(p, {}) for p in own]]
            if optimizer is not None:
                dist.broadcast_object_list(states, _global_rank(home, self._group),
                                           group=self._group)
            for index, (param, weight) in enumerate(
                    zip(self.replicas[slot].parameters(), own)):
                if home == self._rank:
                    param.copy_(weight)
                _broadcast(param, home, self._group)
                torch.autograd.graph.increment_version(param)
                param.grad = None
                if optimizer is not None and states[0][index]:
                    optimizer.state[param] = copy.deepcopy(states[0][index])

    @torch.no_grad()
    def _copy_back(self, optimizer: Optional[torch.optim.Optimizer],
                   keep: Optional[Sequence[int]] = None) -> None:
        """Copies the replicas of this rank's experts back. Experts that are not in
        `keep` are no longer hot; None: all stay."""
        for slot, expert in enumerate(self._slots):
            if expert < 0 or keep is not None and expert in keep:
                continue
            for param, weight in zip(self.replicas[slot].parameters(),
                                     self._own(expert).parameters()):
                state = {} if optimizer is None else optimizer.state.get(param, {})
                if self._home(expert) == self._rank:
                    weight.copy_(param)
                    if state and optimizer is not None:
                        optimizer.state[weight] = copy.deepcopy(state)
                if keep is not None:
                    param.grad = None
                    if optimizer is not None:
                        optimizer.state.pop(param, None)
            if keep is not None:
                self._slots[slot] = -1


def _global_rank(rank: int, group: Any) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)


def _broadcast(tensor: Tensor, source: int, group: Any) -> None:
    dist.broadcast(tensor.view(torch.uint8) if tensor.dim() else tensor,
                   _global_rank(source, group), group=group)


def _drop_replicas(module: HotExperts, state: Dict[str, Any], prefix: str,
                   metadata: Any) -> None:
    for name in [n for n in state if n.startswith(prefix + "replicas.")]:
        del state[name]


def _keep_replicas(module: HotExperts, state: Dict[str, Any], prefix: str,
                   *_: Any) -> None:
    """Adds the replicas to weights that are loaded, which none of them has."""
    module._slots = [-1] * len(module._slots)
    state.update(module.replicas.state_dict(prefix=prefix + "replicas."))
