"""libswamp's C ABI and the plain loops of naive.cpp, called on torch's tensors."""
import ctypes
import functools
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_float,
                    c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64,
                    c_void_p)

import torch

DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2}


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Options(Structure):
    """swamp_mixed_precision_step_options"""
    _fields_ = [("struct_size", c_uint32), ("inv_scale", c_float),
                ("max_norm", c_double), ("lr", c_double), ("beta1", c_double),
                ("beta2", c_double), ("eps", c_double),
                ("weight_decay", c_double), ("step", c_int64),
                ("decoupled", c_int32), ("clip_coefficient", c_float),
                ("optimizer", c_int32), ("nesterov", c_int32),
                ("momentum", c_double), ("dampening", c_double)]


class Lists(Structure):
    _fields_ = [("count", c_size_t)] + [
        (name, POINTER(Tensor)) for name in
        ("masters", "gradients", "exp_avgs", "exp_avg_sqs", "model", "copies")]


class Numbers(Structure):
    _fields_ = [(name, c_float) for name in
                ("inv_scale", "max_norm", "lr", "beta1", "beta2", "eps",
                 "weight_decay")] + [("step", c_int64)]


def tensors(values):
    """An array of swamp_tensor; the torch tensors must live as long."""
    if values is None:
        return None
    return (Tensor * len(values))(
        *[(v.data_ptr(), v.numel(), DTYPES[v.dtype]) for v in values])


class Swamp:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.swamp_last_error.restype = c_char_p
        self.lib.swamp_mixed_precision_step.argtypes = (
            [c_void_p, POINTER(Options), c_size_t] + 5 * [POINTER(Tensor)] +
            [POINTER(c_float), POINTER(c_double)])

    def step(self, lists, options):
        found, norm = c_float(0), c_double(0)
        if self.lib.swamp_mixed_precision_step(
                None, byref(options), lists.count, lists.masters,
                lists.gradients, lists.exp_avgs, lists.exp_avg_sqs, lists.model,
                byref(found), byref(norm) if options.max_norm > 0 else None):
            raise RuntimeError(self.lib.swamp_last_error().decode())
        assert found.value == 0


class Stream(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t), ("access", c_int)]


READ, UPDATE, WRITE = range(3)


class Traffic:
    """A pass over memory: groups of as many arrays, each (address, bytes, access)."""

    def __init__(self, groups):
        self.streams = (Stream * sum(map(len, groups)))(
            *[stream for group in groups for stream in group])
        self.groups, self.arrays = len(groups), len(groups[0])


class Naive:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("naive_step", "eigen_step"):
            getattr(self.lib, name).argtypes = [POINTER(Lists),
                                                POINTER(Numbers)]
        self.lib.naive_traffic.argtypes = [POINTER(Stream), c_size_t, c_size_t,
                                           c_size_t, c_size_t, c_int]
        self.lib.naive_multiply_adds.argtypes = [c_double, c_int]
        self.lib.model_counts.argtypes = [c_char_p, POINTER(c_uint64), c_size_t]
        self.lib.model_counts.restype = c_size_t
        self.lib.naive_set_threads(torch.get_num_threads())

    def counts(self, model):
        """The elements of the model's parameters, as `swamp predict` has them."""
        counts = (c_uint64 * 1000)()
        return counts[:self.lib.model_counts(model.encode(), counts, 1000)]

    def step(self, name, lists, numbers):
        assert getattr(self.lib, name)(byref(lists), byref(numbers)) == 0

    def rooflines(self, passes):
        """{name: call} of the memory traffic of passes: in blocks, with prefetches,
        and with stores that do not read what they overwrite. The fastest is the
        roofline."""
        def call(*how):
            for one in passes:
                self.lib.naive_traffic(one.streams, one.groups, one.arrays, *how)
        return {f"roofline {block} {ahead} {non_temporal}":
                functools.partial(call, block, ahead, non_temporal)
                for block, ahead in ((256, 0), (256, 512), (256, 2048), (4096, 0))
                for non_temporal in (0, 1)}

    def multiply_adds(self, flops, bfloat16):
        """The same of so many floating-point operations in registers."""
        add = self.lib.naive_multiply_adds
        return {f"roofline {kind}": functools.partial(add, flops, kind)
                for kind in ((0, 1) if bfloat16 and add(0, 1) else (0,))}
