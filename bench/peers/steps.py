"""What is measured: one optimizer step from the gradients to the weights, by
everybody, on the same tensors. A case is (name, setup or None, call)."""
import ctypes

import torch

from native import Lists, Numbers, Options, tensors

try:
    from deepspeed.ops.adam import DeepSpeedCPUAdam
except Exception as error:  # it raises what it likes
    DeepSpeedCPUAdam = None
    NO_DEEPSPEED = str(error).splitlines()[0]

LR, BETAS, EPS, DECAY, STEP = 1e-5, (0.9, 0.999), 1e-8, 0.01, 10
SCALE = -1.0  # flips the sign: nobody may skip it, and nothing drifts


class Arrays:
    """Weights, gradients and moments. Without `dtype` 16-bit they are float32
    and the gradients those of the weights; else they are masters, and there
    are 16-bit model weights and gradients, and float32 copies of these."""

    def __init__(self, counts, dtype):
        generator = torch.Generator().manual_seed(1)
        self.mixed = dtype != torch.float32

        def make(scale):
            return [torch.randn(c, generator=generator) * scale for c in counts]

        self.masters = [torch.nn.Parameter(t) for t in make(0.02)]
        copies = make(1e-3)
        self.exp_avgs = make(1e-3)
        self.exp_avg_sqs = [t.square_().add_(1e-7) for t in make(1e-3)]
        self.gradients = [t.to(dtype) for t in copies] if self.mixed else copies
        self.model = ([p.detach().to(dtype) for p in self.masters]
                      if self.mixed else None)
        self.copies = copies
        for p, g in zip(self.masters, copies):
            p.grad = g
        self.norm = torch.linalg.vector_norm(torch.stack(
            [torch.linalg.vector_norm(g.double()) for g in copies])).item()

    def optimizer(self, kind):
        made = kind(self.masters)
        for p, m, v in zip(self.masters, self.exp_avgs, self.exp_avg_sqs):
            step = STEP if kind is deepspeed else torch.tensor(float(STEP))
            made.state[p] = {"step": step, "exp_avg": m,
                             "exp_avg_sq": v}
        return made

    def lists(self):
        made = Lists(len(self.masters), tensors(self.masters),
                     tensors(self.gradients), tensors(self.exp_avgs),
                     tensors(self.exp_avg_sqs), tensors(self.model),
                     tensors(self.copies))
        return made


def adamw(**how):
    return lambda p: torch.optim.AdamW(p, lr=LR, betas=BETAS, eps=EPS,
                                       weight_decay=DECAY, **how)


def deepspeed(parameters):
    return DeepSpeedCPUAdam(parameters, lr=LR, betas=BETAS, eps=EPS,
                            weight_decay=DECAY, adamw_mode=True)


def torch_step(arrays, kind, max_norm):
    """GradScaler where gradients are float32; else the flow of Megatron, with
    copies that were allocated before."""
    optimizer = arrays.optimizer(kind)
    if not arrays.mixed:
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE,
                                      growth_interval=10**9)
        scaler.scale(torch.ones(1))  # makes the scale

        def step():
            if max_norm:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(arrays.masters, max_norm)
            scaler.step(optimizer)
            scaler.update()
        return step

    found = torch.zeros(1)
    inverse = torch.tensor([1 / SCALE])

    def step():
        found.zero_()
        torch._foreach_copy_(arrays.copies, arrays.gradients)
        torch._amp_foreach_non_finite_check_and_unscale_(arrays.copies, found,
                                                         inverse)
        assert found.item() == 0
        if max_norm:
            torch.nn.utils.clip_grad_norm_(arrays.masters, max_norm)
        optimizer.step()
        torch._foreach_copy_(arrays.model, arrays.masters)
    return torch.no_grad()(step)


def step_cases(arrays, clip, swamp, naive):
    # Beyond the norm: everybody finds it, and nobody's gradients shrink.
    max_norm = 2 * arrays.norm if clip else 0
    lists = arrays.lists()
    options = Options(ctypes.sizeof(Options), 1 / SCALE, max_norm, LR, *BETAS,
                      EPS, DECAY, STEP, 1, 0)
    numbers = Numbers(1 / SCALE, max_norm, LR, *BETAS, EPS, DECAY, STEP)
    cases = {"swamp": lambda: swamp.step(lists, options),
             "torch fused": torch_step(arrays, adamw(fused=True), max_norm),
             "torch foreach": torch_step(arrays, adamw(foreach=True),
                                         max_norm)}
    if DeepSpeedCPUAdam is not None:
        cases["DeepSpeed"] = torch_step(arrays, deepspeed, max_norm)
    cases["OpenMP loop"] = lambda: naive.step("naive_step", lists, numbers)
    cases["Eigen"] = lambda: naive.step("eigen_step", lists, numbers)
    cases["roof"] = lambda: naive.roof(lists)
    return cases


def kernel_cases(arrays, swamp):
    """Single passes, of swamp and of torch."""
    found = torch.zeros(1)
    flip = torch.tensor([-1.0])
    gradients = tensors(arrays.gradients)
    name = str(arrays.gradients[0].dtype).split(".")[1]

    def unscale():
        torch._amp_foreach_non_finite_check_and_unscale_(arrays.gradients,
                                                         found, flip)
    cases = {f"unscale {name}": (lambda: swamp.unscale(gradients, -1.0),
                                 torch.no_grad()(unscale))}
    if arrays.mixed:
        wide, narrow = tensors(arrays.copies), tensors(arrays.model)

        def to_wide():
            torch._foreach_copy_(arrays.copies, arrays.gradients)

        def to_narrow():
            torch._foreach_copy_(arrays.model, arrays.masters)
        masters = tensors(arrays.masters)
        cases[f"cast {name} to float32"] = (
            lambda: swamp.cast(wide, gradients), torch.no_grad()(to_wide))
        cases[f"cast float32 to {name}"] = (
            lambda: swamp.cast(narrow, masters), torch.no_grad()(to_narrow))
        return cases
    lists = arrays.lists()
    # A clip_coefficient: the second pass alone.
    options = Options(ctypes.sizeof(Options), 1.0, 0, LR, *BETAS, EPS, DECAY,
                      STEP, 1, 1.0)
    fused = arrays.optimizer(adamw(fused=True))
    cases["AdamW alone"] = (lambda: swamp.step(lists, options), fused.step)
    if DeepSpeedCPUAdam is not None:
        cases["AdamW alone, of DeepSpeed's"] = (
            lambda: swamp.step(lists, options),
            arrays.optimizer(deepspeed).step)
    return cases
