"""A plugin of lightning: float16 on CPUs, and gradient clipping by the optimizer.

Needs the package ``lightning``, so it is imported when it is first used::

    from swamp_torch.lightning import MixedPrecision
    trainer = Trainer(accelerator="cpu", plugins=MixedPrecision(),
                      gradient_clip_val=1.0)
"""

from typing import Any, Callable, Dict, List, Optional, Union

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins.precision import MixedPrecision as _MixedPrecision
from lightning.pytorch.utilities import GradClipAlgorithmType

from ._optimizer import _Optimizer


class MixedPrecision(_MixedPrecision):
    """lightning's ``MixedPrecision`` for the CPU and swamp's optimizers.

    ``Trainer(precision="16-mixed")`` trains in bfloat16 on a CPU; with this plugin
    it is float16, with a ``GradScaler``. lightning refuses to clip the gradients of
    an optimizer that unscales them itself; this plugin passes
    ``gradient_clip_val`` to the optimizer as the ``max_norm`` of the next step. If a
    group has a smaller ``max_norm`` of its own, that remains. After the step the
    groups have their own ``max_norm`` again. Other optimizers are treated as by
    lightning's plugin.

    The norm is that of the gradients of this process, as in DDP; it is not summed
    over the shards of FSDP, which has a plugin of its own. In
    ``on_before_optimizer_step`` the gradients are still scaled; log the optimizer's
    ``grad_norm`` instead of theirs.

    Args:
        precision: "16-mixed" for float16, "bf16-mixed" for bfloat16.
        device: the device of autocast and of the scaler.
        scaler: for "16-mixed"; default: ``torch.amp.GradScaler(device)``.
    """

    def __init__(self, precision: Any = "16-mixed", device: str = "cpu",
                 scaler: Optional[torch.amp.GradScaler] = None) -> None:
        super().__init__(precision, device, scaler)
        # The groups' own max_norm, between clip_gradients() and the step.
        self._max_norms: Dict[Any, List[Optional[float]]] = {}

    def clip_gradients(
            self, optimizer: Any, clip_val: Union[int, float] = 0.0,
            gradient_clip_algorithm: GradClipAlgorithmType =
            GradClipAlgorithmType.NORM) -> None:
        """Sets the ``max_norm`` of the next step of one of swamp's optimizers.

        Args:
            optimizer: clipped by lightning if it is of another class.
            clip_val: the largest norm; 0 or less: no clipping.
            gradient_clip_algorithm: must be NORM for swamp's optimizers.

        Raises:
            ValueError: another algorithm than NORM.
        """
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        if clip_val <= 0 or not isinstance(optimizer, _Optimizer):
            super().clip_gradients(optimizer, clip_val, gradient_clip_algorithm)
            return
        gradient_clip_algorithm = GradClipAlgorithmType(gradient_clip_algorithm)
        if gradient_clip_algorithm != GradClipAlgorithmType.NORM:
            raise ValueError(
                f"gradient_clip_algorithm: got {gradient_clip_algorithm.value!r}, "
                "expected 'norm': swamp clips the norm only")
        groups = optimizer.param_groups
        self._max_norms.setdefault(optimizer, [g["max_norm"] for g in groups])
        for group in groups:
            group["max_norm"] = min(clip_val, group["max_norm"] or clip_val)

    def optimizer_step(  # type: ignore[override]
            self, optimizer: Any, model: LightningModule,
            closure: Callable[[], Any], **kwargs: Any) -> Any:
        """As lightning's; afterwards the groups have their own ``max_norm``."""
        try:
            return super().optimizer_step(optimizer, model, closure, **kwargs)
        finally:
            for group, own in zip(optimizer.param_groups,
                                  self._max_norms.pop(optimizer, [])):
                group["max_norm"] = own
