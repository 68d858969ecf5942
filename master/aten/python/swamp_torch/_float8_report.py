"""What casts to 8 bits lose in each layer of a model: a table and a picture."""

import contextlib
import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
from torch import Tensor

from . import _picture


class Row(NamedTuple):
    """One operand or result of a layer. Results have only a ratio."""
    layer: str
    tensor: str  #: input, weight, output, grad_output, grad_input, grad_weight
    amax: Optional[float]  #: the largest magnitude
    #: Largest code over its value; of blocks and rows, the mean value; None without
    #: elements, and if the scales make a 0 of each code.
    scale: Optional[float]
    saturated: Optional[float]  #: share of the elements beyond the largest code
    flushed: Optional[float]  #: share of the elements that became 0, but were not
    snr: float  #: signal to noise in decibels; inf without an error


def _decibels(exact: Tensor, rounded: Tensor) -> float:
    """10 log10 of the sum of squares over that of the errors."""
    wide = exact.double()
    noise = float((rounded.double() - wide).square().sum())
    signal = float(wide.square().sum())
    ratio = signal / noise if noise else math.inf
    return 10 * math.log10(ratio) if ratio > 0 else -math.inf


class Record:
    """The latest casts of a layer."""

    def __init__(self) -> None:
        self.rows: Dict[str, Row] = {}

    def operand(self, name: str, x: Tensor, operand: Any) -> None:
        """Adds a matrix and its codes."""
        wide = x.float()
        amax = float(wide.abs().max()) if wide.numel() else 0.0
        if operand.cast.kind == "none" or not wide.numel():
            self.rows[name] = Row("", name, amax, None, 0.0, 0.0, math.inf)
            return
        rounded = operand.whole(torch.float32)
        # The largest code everywhere gives the largest value of each element.
        codes = torch.full_like(operand.codes.view(torch.uint8),
                                _LARGEST[operand.cast.format])
        most = operand._replace(
            codes=codes.view(operand.codes.dtype)).whole(torch.float32)
        largest = float(_ops.dequantize(codes.view(operand.codes.dtype)[:1],
                                        operand.cast.format,
                                        torch.float32).max())
        mean, count = float(most.mean()), wide.numel()
        self.rows[name] = Row(
            "", name, amax, largest / mean if mean else None,
            # The largest element may be beyond it, as scales are rounded.
            int((wide.abs() > most * (1 + 2 ** -20)).sum()) / count,
            int(((wide != 0) & (rounded == 0)).sum()) / count,
            _decibels(wide, rounded))

    def result(self, name: str, result: Tensor, exact: Tensor) -> None:
        """Adds a product, and that of the operands before the casts."""
        self.rows[name] = Row("", name, None, None, None, None,
                              _decibels(exact, result))


_ops = torch.ops.swamp

# The codes of the largest numbers, by the numbers of formats.
_LARGEST = {4: 0x7e, 5: 0x7b, 6: 0x7f, 7: 0x7f, 8: 0x1f, 9: 0x1f, 10: 0x77,
            11: 0x6e}


def _layers(model: torch.nn.Module) -> Dict[str, Any]:
    return {name: module for name, module in model.named_modules()
            if hasattr(module, "_record")}


@contextlib.contextmanager
def recording(model: torch.nn.Module) -> Iterator[None]:
    """A context in which the layers of a converted model record their casts for
    :func:`report`, which keeps the last forward and backward pass. A step takes
    several times as long; compiled code does not record."""
    layers = _layers(model)
    for layer in layers.values():
        layer._record = Record()
    try:
        yield
    finally:
        for layer in layers.values():
            layer._recorded, layer._record = layer._record, None


def report(model: torch.nn.Module, *, plot: Optional[str] = None,
           file: Any = None) -> List[Row]:
    """What the casts of a converted model have lost, from the last pass in
    :func:`recording`: by layer the amax, the scale, the shares of saturated and
    flushed elements of input, weight and grad_output, and the signal-to-noise
    ratio of these and of output, grad_input and grad_weight, against the tensors
    before the casts and their products. Prints a table.

    Args:
        model: as :func:`convert_to_float8_training` returned it.
        plot: the path of a picture of the ratios, .svg, .png or .pdf; needs
            matplotlib.
        file: where to print; None: standard output.

    Returns:
        The rows.

    Raises:
        ValueError: nothing was recorded.
        ImportError: matplotlib is missing, which `plot` needs.
    """
    rows = [row._replace(layer=name or "(root)")
            for name, layer in _layers(model).items()
            for row in getattr(layer, "_recorded", Record()).rows.values()]
    if not rows:
        raise ValueError("model: got one without records, expected a pass in "
                         "float8.recording(model)")
    if plot is not None:
        _draw(rows, plot)
    width = max(len(row.layer) for row in rows)
    print(f"{'layer':{width}}  tensor            amax      scale  saturated  "
          "flushed  SNR dB", file=file)
    for row in rows:
        cells = "".join(_cell(value, form) for value, form in (
            (row.amax, "11.4g"), (row.scale, "11.4g"), (row.saturated, "11.2%"),
            (row.flushed, "9.2%"), (row.snr, "8.1f")))
        print(f"{row.layer:{width}}  {row.tensor:11}{cells}", file=file)
    return rows


def _cell(value: Optional[float], form: str) -> str:
    return " " * int(form.split(".")[0]) if value is None else f"{value:{form}}"


_TENSORS = ("input", "weight", "output", "grad_output", "grad_input", "grad_weight")


def _draw(rows: List[Row], path: str) -> None:
    """Draws the ratios: a layer a column, a tensor a line. inf is a gap."""
    layers = list(dict.fromkeys(row.layer for row in rows))
    figure = _picture.figure(max(7.0, 0.3 * len(layers)), 4.5)
    axes = figure.subplots()
    for tensor in _TENSORS:
        ratios = {row.layer: row.snr for row in rows
                  if row.tensor == tensor and math.isfinite(row.snr)}
        axes.plot([layers.index(layer) for layer in ratios], list(ratios.values()),
                  marker="o", label=tensor)
    axes.set_xticks(range(len(layers)), layers, rotation=-40, ha="left")
    axes.set_ylabel("signal to noise, decibels")
    axes.grid(axis="y")
    figure.legend(ncols=len(_TENSORS), loc="outside upper center", fontsize="small")
    _picture.save(figure, path)
