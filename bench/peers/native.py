"""libswamp and the naive loops, called on torch's tensors."""
import ctypes
from ctypes import (POINTER, Structure, byref, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint32, c_void_p)

import torch

DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2}


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Options(Structure):
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
        self.lib.swamp_last_error.restype = ctypes.c_char_p
        self.lib.swamp_version.restype = ctypes.c_char_p
        listed = POINTER(Tensor)
        self.lib.swamp_mixed_precision_step.argtypes = (
            [c_void_p, POINTER(Options), c_size_t] + 5 * [listed] +
            [POINTER(c_float), POINTER(c_double)])
        self.lib.swamp_foreach_cast.argtypes = [c_void_p, c_size_t, listed,
                                                listed, c_float]
        unscale = self.lib.swamp_amp_foreach_non_finite_check_and_unscale
        unscale.argtypes = [c_void_p, listed, c_size_t, POINTER(c_float),
                            POINTER(c_float)]

    def version(self):
        return self.lib.swamp_version().decode()

    def ok(self, status):
        if status != 0:
            raise RuntimeError(self.lib.swamp_last_error().decode())

    def step(self, lists, options):
        found = c_float(0)
        norm = c_double(0)
        self.ok(self.lib.swamp_mixed_precision_step(
            None, byref(options), lists.count, lists.masters, lists.gradients,
            lists.exp_avgs, lists.exp_avg_sqs, lists.model, byref(found),
            byref(norm) if options.max_norm > 0 else None))
        assert found.value == 0

    def unscale(self, values, inv_scale):
        found, factor = c_float(0), c_float(inv_scale)
        self.ok(self.lib.swamp_amp_foreach_non_finite_check_and_unscale(
            None, values, len(values), byref(found), byref(factor)))
        assert found.value == 0

    def cast(self, out, source):
        self.ok(self.lib.swamp_foreach_cast(None, len(out), out, source, 1.0))


class Naive:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("naive_step", "eigen_step"):
            getattr(self.lib, name).argtypes = [POINTER(Lists),
                                                POINTER(Numbers)]
        self.lib.roof_step.argtypes = [POINTER(Lists), c_float]

    def step(self, name, lists, numbers):
        assert getattr(self.lib, name)(byref(lists), byref(numbers)) == 0

    def roof(self, lists):
        self.lib.roof_step(byref(lists), 1.0)
