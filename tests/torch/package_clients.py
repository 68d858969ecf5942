"""swamp_torch.AdamW in the programs that people train with: each flow
of the table below has the losses and the weights of torch.optim.AdamW(fused=True), bit
for bit. Rows of packages that are not installed are skipped; package_sharded.py has FSDP.

usage: package_clients.py PATH [unittest's arguments]
"""

import contextlib
import importlib
import io
import logging
import os
import tempfile
import unittest
import warnings
from functools import partial
from unittest import mock

from support import TestCase, declare_torchvision, main, run_ranks, same

import torch
import torch.distributed as dist
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

import swamp_torch
from swamp_torch import AdamW

WORLD = 2


class Net(torch.nn.Module):
    """Returns its loss. Sizes are multiples of 64: PyTorch's vector body, whose bits
    are promised."""

    def __init__(self, job):
        super().__init__()
        torch.manual_seed(5)
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(job.width, job.width) for _ in range(job.layers))
        self.losses = job.losses

    def forward(self, x):
        h = x
        for layer in self.layers:
            h = h + torch.nn.functional.gelu(layer(h))
        loss = (h.float() - x).square().mean()
        self.losses.append(loss.detach())
        return loss


class Job:
    """One training: sizes, optimizer, and what it gives."""

    width, layers, steps, rows = 64, 2, 6, 8
    scale = 2.0 ** 21  # in float16 the first steps overflow

    def __init__(self, swamp, rank=0):
        self.swamp, self.rank = swamp, rank
        self.losses, self.weights = [], []
        self.optimizer_class = AdamW if swamp else torch.optim.AdamW
        self.options = dict(lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
        if not swamp:
            self.options["fused"] = True

    def net(self):
        net = Net(self)
        self.weights = list(net.parameters())
        return net

    def batch(self, step):
        generator = torch.Generator().manual_seed(100 * step + self.rank)
        return torch.randn(self.rows, self.width, generator=generator)

    def optimizer(self, net, **more):
        return self.optimizer_class(net.parameters(), **self.options, **more)


# The flows: each trains a network of the job. In a loop with clipping, stock clips by
# swamp's clip_grad_norm_, which has max_norm's bits.

def loop(job, net, optimizer, scaler=None, half=False, accumulate=1, clip=None):
    for step in range(job.steps):
        for micro in range(accumulate):
            last = micro == accumulate - 1
            wait = (contextlib.nullcontext() if last or
                    not hasattr(net, "no_sync") else net.no_sync())
            with wait:
                with torch.autocast("cpu", torch.float16, enabled=half):
                    loss = net(job.batch(step * accumulate + micro)) / accumulate
                (scaler.scale(loss) if scaler else loss).backward()
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            clip(net.parameters(), 1e-2)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()
    return net


def grad_scaler(job, kind=torch.amp.GradScaler):
    return kind(device="cpu", init_scale=job.scale, growth_interval=2)


def plain(job, wrap=lambda net: net, scaled=False, **options):
    net = wrap(job.net())
    loop(job, net, job.optimizer(net), grad_scaler(job) if scaled else None, half=scaled,
         **options)


def clipped(job):
    net = job.net()
    if job.swamp:
        loop(job, net, job.optimizer(net, max_norm=1e-2), grad_scaler(job), half=True)
    else:
        loop(job, net, job.optimizer(net), grad_scaler(job), half=True,
             clip=swamp_torch.clip_grad_norm_)


def accelerate(job):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16",
                              gradient_accumulation_steps=2)
    net = job.net()
    net, optimizer = accelerator.prepare(net, job.optimizer(net))
    for step in range(2 * job.steps):
        with accelerator.accumulate(net):
            accelerator.backward(net(job.batch(step)))
            optimizer.step()
            optimizer.zero_grad()


def trainer_of_lightning(job, module, plugin, **options):
    from lightning.pytorch import Trainer
    trainer = Trainer(accelerator="cpu", devices=1, max_steps=job.steps,
                      plugins=[plugin], logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False,
                      **options)
    batches = [job.batch(step) for step in range(8 * job.steps)]
    trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    return trainer


def lightning_module(job, **more):
    from lightning.pytorch import LightningModule

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = job.net()

        def training_step(self, batch, _):
            return self.net(batch)

        def configure_optimizers(self):
            return job.optimizer(self, **more)

    return Module()


def lightning_plugin(job):
    from lightning.pytorch.plugins.precision import MixedPrecision
    if job.swamp:
        from swamp_torch.lightning import MixedPrecision
    return MixedPrecision("16-mixed", "cpu", grad_scaler(job))


def lightning(job):
    trainer_of_lightning(job, lightning_module(job), lightning_plugin(job),
                         accumulate_grad_batches=2)


def lightning_clipped(job):
    """lightning refuses to clip for a fused optimizer: stock is a loop."""
    if job.swamp:
        trainer_of_lightning(job, lightning_module(job), lightning_plugin(job),
                             gradient_clip_val=1e-2)
    else:
        clipped(job)


def transformers(job):
    from transformers import Trainer, TrainingArguments

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = job.net()

        def forward(self, x):
            return {"loss": self.net(x)}

    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            Wrapped(),
            TrainingArguments(
                folder, max_steps=job.steps, per_device_train_batch_size=job.rows,
                use_cpu=True, bf16=True, max_grad_norm=0.0, weight_decay=0.1,
                lr_scheduler_type="constant", report_to=[], save_strategy="no",
                disable_tqdm=True, logging_strategy="no",
                dataloader_pin_memory=False),
            train_dataset=[{"x": row} for row in job.batch(0)] * 2 * job.steps,
            optimizer_cls_and_kwargs=(job.optimizer_class, job.options),
        ).train()


def timm(job):
    from timm.optim import OptimInfo, create_optimizer_v2
    from timm.optim._optim_factory import default_registry
    from timm.utils import NativeScaler
    name = "swampadamw" if job.swamp else "stockadamw"
    if name not in default_registry.list_optimizers():
        default_registry.register(OptimInfo(name, job.optimizer_class,
                                            has_betas=True))
    net = job.net()
    options = dict(job.options)
    optimizer = create_optimizer_v2(net, opt=name, lr=options.pop("lr"),
                                    weight_decay=options.pop("weight_decay"),
                                    **options)
    assert type(optimizer) is job.optimizer_class
    scaler = NativeScaler(device="cpu")
    for step in range(job.steps):
        with torch.autocast("cpu", torch.float16):
            loss = net(job.batch(step))
        scaler(loss, optimizer, clip_grad=1e-2, parameters=net.parameters())
        optimizer.zero_grad()


def torchao(job):
    """Quantization-aware training: weights are quantized in each forward pass."""
    from torchao.quantization import Int4WeightOnlyConfig, quantize_
    from torchao.quantization.qat import QATConfig
    net = job.net()
    quantize_(net, QATConfig(Int4WeightOnlyConfig(group_size=32),
                             step="prepare"))
    job.weights = list(net.parameters())
    loop(job, net, job.optimizer(net))


def torchao_offload(job):
    from torchao.optim import cpu_offload
    net = job.net()
    with OnCpu(), mock.patch.object(cpu_offload, "get_available_devices", lambda: ["cuda"]):
        loop(job, net, cpu_offload.CPUOffloadOptimizer(
            net.parameters(), job.optimizer_class, **job.options))


def oss(job):
    """Without fairscale's ShardedGradScaler, which calls .cuda()."""
    from fairscale.optim import OSS
    net = DistributedDataParallel(job.net())
    loop(job, net, OSS(net.parameters(), optim=job.optimizer_class, **job.options),
         grad_scaler(job, ShardedGradScaler), half=True)


class OnCpu(TorchFunctionMode):
    """For programs whose source names CUDA: its tensors are on the CPU, and tensors there
    have the types that they expect. Streams wait, and copies are made at once."""

    def __init__(self, params=()):
        """params: tensors that are on the GPU."""
        super().__init__()
        self.params = set(map(id, params))
        self.cuda = mock.patch.multiple(
            torch.cuda, Stream=mock.MagicMock(), current_stream=mock.MagicMock(),
            current_device=lambda: "cpu", stream=lambda stream: contextlib.nullcontext())

    def __enter__(self):
        self.cuda.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.cuda.stop()

    def __torch_function__(self, function, types, args=(), options=None):
        options = dict(options or {})
        options.pop("pin_memory", None)
        if function is torch.Tensor.pin_memory:
            return args[0]
        if function == torch.Tensor.is_cuda.__get__:
            return id(args[0]) in self.params
        if options.get("device") == "cuda":
            options["device"] = "cpu"
        if function is torch.Tensor.to and args[1:] == ("cuda",):
            args = args[:1]
        result = function(*args, **options)
        if function is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")
        return result


def megatron_core(job, dtype):
    """Its Float16OptimizerWithFloat16Params with an optimizer of PyTorch's kind: it
    unscales by the operator that swamp replaces, and has masters of its own."""
    from megatron.core import parallel_state
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.optimizer.grad_scaler import DynamicGradScaler
    from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
    parallel_state.initialize_model_parallel()
    net = DistributedDataParallel(job.net().to(dtype))
    fp16 = dtype is torch.float16
    with OnCpu():
        scaler = DynamicGradScaler(job.scale, min_scale=1.0, growth_factor=2.0,
                                   backoff_factor=0.5, growth_interval=2,
                                   hysteresis=1) if fp16 else None
        optimizer = Float16OptimizerWithFloat16Params(
            job.optimizer(net), OptimizerConfig(fp16=fp16, bf16=not fp16,
                                                params_dtype=dtype, clip_grad=1e-2),
            scaler, lambda *_: None)
        for step in range(job.steps):
            optimizer.scale_loss(net(job.batch(step).to(dtype))).backward()
            optimizer.step()
            optimizer.zero_grad()
    parallel_state.destroy_model_parallel()


def megatron_hybrid(job, fraction, dtype):
    """Half of the parameters have PyTorch's optimizer, or all are offloaded with float32
    masters. The second part goes on from a state dict."""
    from megatron.core.optimizer.cpu_offloading import HybridDeviceOptimizer
    net = job.net().to(dtype)
    options = dict(job.options)
    options.pop("fused", None)
    with OnCpu(net.parameters()):
        states = None
        for _ in range(2):
            optimizer = HybridDeviceOptimizer(
                net.parameters(), fraction, job.optimizer_class,
                torch.optim.AdamW, param_update_in_fp32=dtype is not torch.float32,
                bias_correction=True, fused=True, **options)
            if states:
                optimizer.load_state_dict(states)
            for step in range(job.steps):
                optimizer.zero_grad()
                net(job.batch(step).to(dtype)).backward()
                optimizer.step()
            states = optimizer.state_dict()


def deepspeed(job, stage, offload=False):
    """bfloat16, with the flat float32 masters that are its own."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", str(job.rank))
    import deepspeed
    net = job.net()
    engine, *_ = deepspeed.initialize(
        model=net, optimizer=job.optimizer(net), dist_init_required=False,
        config=dict(train_micro_batch_size_per_gpu=job.rows,
                    bf16=dict(enabled=True), gradient_clipping=1e-2,
                    zero_optimization=dict(stage=stage, **(
                        dict(offload_optimizer=dict(device="cpu")) if offload else {})),
                    zero_allow_untested_optimizer=True,
                    zero_force_ds_cpu_optimizer=False))
    for step in range(job.steps):
        engine.backward(engine(job.batch(step).bfloat16()))
        engine.step()
    if stage == 3:
        with deepspeed.zero.GatheredParameters(job.weights):
            job.weights = [p.detach().clone() for p in job.weights]


# name, flow, the packages that it needs, whether it is for two ranks
ROWS = (
    ("plain loop", plain, "", False),
    ("GradScaler", partial(plain, scaled=True), "", False),
    ("GradScaler, clipping", clipped, "", False),
    ("accumulation", partial(plain, accumulate=3), "", False),
    ("DDP, GradScaler", partial(plain, wrap=DistributedDataParallel, scaled=True,
                                accumulate=2), "", True),
    ("accelerate", accelerate, "accelerate", False),
    ("lightning", lightning, "lightning", False),
    ("lightning, clipping", lightning_clipped, "lightning", False),
    ("transformers Trainer", transformers, "transformers accelerate", False),
    ("timm", timm, "timm", False),
    ("torchao", torchao, "torchao", False),
    ("torchao CPUOffloadOptimizer", torchao_offload, "torchao", False),
    ("fairscale OSS", oss, "fairscale", True),
    ("Megatron core, float16", partial(megatron_core, dtype=torch.float16),
     "megatron.core", True),
    ("Megatron core, bfloat16", partial(megatron_core, dtype=torch.bfloat16),
     "megatron.core", True),
    ("Megatron core, half offloaded", partial(megatron_hybrid, fraction=0.5,
                                              dtype=torch.float32), "megatron.core", False),
    ("Megatron core, offloaded", partial(megatron_hybrid, fraction=1.0,
                                         dtype=torch.bfloat16), "megatron.core", False),
    *((f"DeepSpeed bf16, ZeRO {stage}{', offloaded' * offload}",
       partial(deepspeed, stage=stage, offload=offload), "deepspeed", True)
      for offload in (False, True) for stage in range(offload, 4)),
)


def missing(packages):
    """Why one of the packages cannot be used, or None."""
    if packages:
        declare_torchvision()
    for package in packages.split():
        try:
            importlib.import_module(package)
        except Exception as error:  # also a package that does not fit this PyTorch
            return f"{package}: {error}"
    return None


@contextlib.contextmanager
def quiet():
    """Hides the clients' messages about this machine and their settings."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def observe(flow, swamp, rank=0):
    """Losses and weights of a flow, with PyTorch's operators or with swamp's."""
    (swamp_torch.enable if swamp else swamp_torch.disable)()
    job = Job(swamp, rank)
    with quiet():
        flow(job)
    swamp_torch.enable()
    assert job.losses and job.weights
    return job.losses + [p.detach() for p in job.weights]


def observe_rows(rank, _, names):
    """Of each row, what stock gives and what swamp gives."""
    return {name: [observe(flow, swamp, rank=rank) for swamp in (False, True)]
            for name, flow, _, _ in ROWS if name in names}


class Clients(TestCase):
    def check(self, name, stock, ours):
        losses = len(stock) - len(list(Net(Job(False)).parameters()))
        self.assert_same(ours, stock, (name, stock[:losses], ours[:losses]))
        # The last step was not skipped.
        self.assertFalse(any(map(same, stock[losses:], Net(Job(False)).parameters())))

    def test_rows(self):
        several = []
        for name, _, packages, ranks in ROWS:
            with self.subTest(row=name):
                reason = missing(packages)
                if reason:
                    self.skipTest(reason)
                elif ranks:
                    several.append(name)
                else:
                    self.check(name, *observe_rows(0, 1, (name,))[name])
        if not (dist.is_available() and dist.is_gloo_available()):
            self.skipTest("this torch has no gloo")
        for rank, seen in enumerate(run_ranks(observe_rows, WORLD, several)):
            for name in several:
                with self.subTest(row=name, rank=rank):
                    self.check(name, *seen[name])


class Lightning(TestCase):
    """What the rows do not test of swamp_torch.lightning.MixedPrecision."""

    @classmethod
    def setUpClass(cls):
        reason = missing("lightning")
        if reason:
            raise unittest.SkipTest(reason)

    def fit(self, own=None, precision="16-mixed", **options):
        """The job, the optimizer, and the max_norm and norm of each step."""
        from swamp_torch.lightning import MixedPrecision
        job, seen = Job(True), []
        module = lightning_module(job, max_norm=own)
        scaler = grad_scaler(job) if precision == "16-mixed" else None

        def note(optimizer, *_):
            if not optimizer.skipped:
                seen.append((optimizer.param_groups[0]["max_norm"],
                             optimizer.grad_norm))

        handle = register_optimizer_step_post_hook(note)
        try:
            with quiet():
                trainer = trainer_of_lightning(
                    job, module, MixedPrecision(precision, scaler=scaler), **options)
        finally:
            handle.remove()
        return job, trainer.optimizers[0], seen

    def test_max_norm(self):
        # precision, the group's max_norm, gradient_clip_val, max_norm of the step
        for precision, own, clip, used in (
                ("16-mixed", None, 1e-2, 1e-2), ("16-mixed", 0.0, 1e-2, 1e-2),
                ("16-mixed", 1e-3, 1e-2, 1e-3), ("16-mixed", 1e-2, 1e-3, 1e-3),
                ("16-mixed", 1e-2, None, 1e-2), ("16-mixed", 1e-2, 0.0, 1e-2),
                ("16-mixed", None, None, None), ("bf16-mixed", None, 1e-2, 1e-2)):
            with self.subTest(precision=precision, own=own, clip=clip):
                _, optimizer, seen = self.fit(own, precision, gradient_clip_val=clip)
                self.assertTrue(seen)
                self.assertEqual({max_norm for max_norm, _ in seen}, {used})
                self.assertTrue(all(norm > used if used else norm is None
                                    for _, norm in seen), seen)
                self.assertEqual(optimizer.param_groups[0]["max_norm"], own)

    def test_default_is_float16(self):
        from swamp_torch.lightning import MixedPrecision
        plugin = MixedPrecision()
        with plugin.forward_context():
            self.assertIs(torch.get_autocast_dtype("cpu"), torch.float16)
            self.assertTrue(torch.is_autocast_enabled("cpu"))
        self.assertEqual(plugin.scaler.scale(torch.ones(())).item(), 2.0 ** 16)

    def test_by_value_is_refused(self):
        with self.assertRaisesRegex(ValueError, "^gradient_clip_algorithm: got 'value'"):
            self.fit(gradient_clip_val=1e-2, gradient_clip_algorithm="value")

    def test_other_optimizers(self):
        """lightning clips by itself, or refuses to."""
        from swamp_torch.lightning import MixedPrecision
        for fused in (False, True):
            param = torch.nn.Parameter(torch.ones(64))
            param.grad = torch.ones(64)
            optimizer = torch.optim.AdamW([param], fused=fused)
            if fused:
                with self.assertRaisesRegex(RuntimeError, "does not allow for"):
                    MixedPrecision().clip_gradients(optimizer, 1.0)
            else:
                MixedPrecision().clip_gradients(optimizer, 1.0)
                self.assertAlmostEqual(param.grad.norm().item(), 1.0, 4)

    def test_manual_optimization(self):
        """The same bits as gradient_clip_val."""
        from swamp_torch.lightning import MixedPrecision
        automatic, _, _ = self.fit(gradient_clip_val=1e-2)
        job = Job(True)
        kind = type(lightning_module(job))

        class Manual(kind):
            automatic_optimization = False

            def training_step(self, batch, _):
                optimizer = self.optimizers()
                self.manual_backward(self.net(batch))
                self.clip_gradients(optimizer, 1e-2, "norm")
                optimizer.step()
                optimizer.zero_grad()

        with quiet():
            trainer_of_lightning(job, Manual(),
                                 MixedPrecision(scaler=grad_scaler(job)))
        self.assert_same(job.losses, automatic.losses)
        self.assert_same(list(job.weights), list(automatic.weights))


if __name__ == "__main__":
    main()
