"""libswamp.so through its C ABI."""

import ctypes
from ctypes import (POINTER, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

import torch

DTYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2,
          torch.float64: 3}


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Config(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("machine", c_char_p),
                ("backend", c_char_p), ("transfer", c_char_p),
                ("core_groups", c_uint32), ("slaves_per_group", c_uint32),
                ("ldm_bytes", c_size_t), ("isa", c_char_p), ("bind", c_char_p)]


class Report(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("tensor", c_uint64),
                ("index", c_uint64), ("tensor_count", c_uint64),
                ("element_count", c_uint64)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.swamp_last_error.restype = c_char_p
        self.lib.swamp_version.restype = c_char_p
        self.lib.swamp_machine_create.argtypes = [POINTER(Config),
                                                  POINTER(c_void_p)]
        self.lib.swamp_machine_destroy.argtypes = [c_void_p]
        unscale = "swamp_amp_foreach_non_finite_check_and_unscale_report"
        self._unscale = getattr(self.lib, unscale)
        self._unscale.argtypes = [c_void_p, POINTER(Tensor), c_size_t,
                                  POINTER(c_float), POINTER(c_float),
                                  POINTER(Report)]
        self._update_scale = self.lib.swamp_amp_update_scale
        self._update_scale.argtypes = [POINTER(c_float), POINTER(c_int32),
                                       POINTER(c_float), c_double, c_double,
                                       c_int64]

    def _check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.swamp_last_error().decode())

    def machine(self, **fields):
        config = Config(struct_size=ctypes.sizeof(Config))
        for name, value in fields.items():
            setattr(config, name,
                    value.encode() if isinstance(value, str) else value)
        machine = c_void_p()
        self._check(self.lib.swamp_machine_create(ctypes.byref(config),
                                                  ctypes.byref(machine)))
        return machine

    def unscale(self, tensors, found_inf, inv_scale, machine=None):
        """Returns found_inf and the report; the tensors change in place."""
        views = (Tensor * max(1, len(tensors)))()
        for view, tensor in zip(views, tensors):
            assert tensor.is_contiguous()
            view.data = tensor.data_ptr() if tensor.numel() else None
            view.count = tensor.numel()
            view.dtype = DTYPES[tensor.dtype]
        found = c_float(found_inf)
        report = Report(struct_size=ctypes.sizeof(Report))
        self._check(self._unscale(machine, views, len(tensors),
                                  ctypes.byref(found),
                                  ctypes.byref(c_float(inv_scale)),
                                  ctypes.byref(report)))
        return found.value, report

    def update_scale(self, scale, tracker, found_inf, growth, backoff,
                     interval):
        scale, tracker = c_float(scale), c_int32(tracker)
        self._check(self._update_scale(
            ctypes.byref(scale), ctypes.byref(tracker),
            ctypes.byref(c_float(found_inf)), growth, backoff, interval))
        return scale.value, tracker.value
