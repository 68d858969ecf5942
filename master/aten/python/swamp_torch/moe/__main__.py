"""The tokens of each expert, by layer and step, from lines of JSON as
swamp_torch.moe.write_counts() writes them, from MindFormers' layer-N_STEP.npy, or from
folders of such npy files. A line has the keys step, layer and counts (tokens of each
expert, before dropping), and may have dropped (how many of these); others are ignored.
MindFormers' counts miss the last token of a group. Exit code: 0; 2 for a bad file or
option."""

import argparse
import json
import os
import re
import sys
import textwrap
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _picture


class Record(NamedTuple):
    """One step of one layer."""
    counts: List[int]
    dropped: Optional[int]


Layer = Dict[int, Record]  # by step
Layers = Dict[int, Layer]
_KEYS = "expected step, layer and counts"


def _integer(name: str, value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"{name}: got {value!r}, expected an integer of at least 0")


def _add(layers: Layers, record: Dict[str, Any]) -> None:
    """Adds the record of a line. Of the numbers, only the types are unknown."""
    for key in ("step", "layer", "counts"):
        if key not in record:
            raise ValueError(f"{key}: missing, {_KEYS}")
    step, layer = (_integer(key, record[key]) for key in ("step", "layer"))
    counts = record["counts"]
    if not isinstance(counts, list) or not counts:
        raise ValueError(f"counts: got {counts!r}, expected an array with a number for "
                         "each expert")
    counts = [_integer(f"counts[{e}]", count) for e, count in enumerate(counts)]
    dropped = None
    if "dropped" in record:
        dropped = _integer("dropped", record["dropped"])
        if dropped > sum(counts):
            raise ValueError(f"dropped: got {dropped}, expected at most {sum(counts)}, "
                             "the sum of counts")
    steps = layers.setdefault(layer, {})
    for other, found in steps.items():
        if len(found.counts) != len(counts):
            raise ValueError(f"counts: got {len(counts)} experts, expected "
                             f"{len(found.counts)}, as step {other} of layer {layer} has")
        break
    if step in steps:
        raise ValueError(f"step: got {step} of layer {layer} twice, expected each step "
                         "once")
    steps[step] = Record(counts, dropped)


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """The object of a line; json.loads() would take the last of equal keys."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError(f"got the keys {[key for key, _ in pairs]}, expected each once")
    return record


def _read_lines(path: str, layers: Layers) -> None:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    record = json.loads(line, object_pairs_hook=_object)
                    if not isinstance(record, dict):
                        raise ValueError(f"got no JSON object, {_KEYS}")
                    _add(layers, record)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error


def _numbers(path: str) -> Optional[Dict[str, int]]:
    """The layer and the step in the name of one of MindFormers' files."""
    name = re.fullmatch("layer-([0-9]+)_([0-9]+)[.]npy", os.path.basename(path))
    return name and {"layer": int(name[1]), "step": int(name[2])}


def _read_array(path: str, layers: Layers) -> None:
    import numpy
    numbers = _numbers(path)
    if numbers is None:
        raise ValueError(f"{path}: got this name, expected layer-N_STEP.npy, with the "
                         "numbers of a layer and a step")
    try:
        with open(path, "rb") as file:
            array = numpy.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind not in "iuf" or array.ndim != 1:
            raise ValueError(f"counts: got {array.dtype} {list(array.shape)}, expected "
                             "an array with a number for each expert")
        counts = [int(x) if float(x).is_integer() else x for x in array.tolist()]
        _add(layers, {**numbers, "counts": counts})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read(path: str, layers: Layers) -> None:
    if os.path.isdir(path):
        found = sorted(filter(_numbers, os.listdir(path)))
        if not found:
            raise ValueError(f"{path}: got a folder without counts, expected files of "
                             "the names layer-N_STEP.npy")
        for name in found:
            _read_array(os.path.join(path, name), layers)
    elif path.endswith(".npy"):
        _read_array(path, layers)
    else:
        _read_lines(path, layers)


def _imbalance(counts: Sequence[int]) -> float:
    """The largest count divided by the mean; 1 without tokens."""
    return max(counts) * len(counts) / sum(counts) if any(counts) else 1.0


def _hottest(counts: Sequence[int], number: int) -> List[int]:
    """The experts of the highest counts, hottest first; of equal ones the lowest."""
    return sorted(range(len(counts)), key=lambda e: -counts[e])[:number]


def _summary(number: int, layer: Layer, hot: int) -> Dict[str, Any]:
    steps = sorted(layer)
    last = layer[steps[-1]].counts
    tokens = [sum(of_expert) for of_expert in zip(*(r.counts for r in layer.values()))]
    imbalances = {step: _imbalance(layer[step].counts) for step in steps}
    highest = max(steps, key=lambda step: imbalances[step])
    known = [record for record in layer.values() if record.dropped is not None]
    dropped = sum(record.dropped or 0 for record in known)
    counted = sum(sum(record.counts) for record in known)
    return {
        "layer": number, "experts": len(last), "steps": len(steps),
        "first_step": steps[0], "last_step": steps[-1], "tokens": tokens,
        "imbalance": sum(imbalances.values()) / len(steps),
        "last_imbalance": imbalances[steps[-1]],
        "highest_imbalance": imbalances[highest], "highest_imbalance_step": highest,
        "dropped": dropped if known else None,
        "drop_rate": (dropped / counted if counted else 0.0) if known else None,
        "hot": _hottest(last, hot), "all_hot": _hottest(tokens, hot)}


def _fields(title: str, experts: Sequence[int], counts: Sequence[int]) -> str:
    fields = "".join(f"  {e}:\xa0{counts[e]}" for e in experts)
    return textwrap.fill(f"  {title}:{fields}", 80, subsequent_indent="    ",
                         break_long_words=False).replace("\xa0", " ")


def _text(layer: Layer, summary: Dict[str, Any]) -> str:
    experts, steps, last = (summary[key] for key in ("experts", "steps", "last_step"))
    tokens = summary["tokens"]
    lines = [
        f"layer {summary['layer']}: {experts} expert{'s' * (experts != 1)}, {steps} "
        f"step{'s' * (steps != 1)} ({summary['first_step']} to {last})",
        _fields("tokens by expert", range(experts), tokens),
        f"  imbalance (max / mean): {summary['imbalance']:.3f} on average, "
        f"{summary['last_imbalance']:.3f} in step {last}, at most "
        f"{summary['highest_imbalance']:.3f}\n    in step "
        f"{summary['highest_imbalance_step']}"]
    if summary["dropped"] is not None:
        counted = sum(sum(r.counts) for r in layer.values() if r.dropped is not None)
        lines.append(f"  dropped: {summary['dropped']} of {counted} tokens, "
                     f"{100 * summary['drop_rate']:.2f} %")
    lines += [_fields(f"hot experts of step {last}", summary["hot"], layer[last].counts),
              _fields("hot experts of all steps", summary["all_hot"], tokens)]
    return "\n".join(lines)


def _draw(layers: Layers, path: str) -> None:
    """Draws a heat map of each layer: experts over steps, in the same colors."""
    columns = 1 if len(layers) <= 3 else 2 if len(layers) <= 12 else 4
    rows = -(-len(layers) // columns)
    figure = _picture.figure(2 + 6 * columns, 1 + 3 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    highest = max(_imbalance(r.counts) for layer in layers.values()
                  for r in layer.values())
    for axis, (number, layer) in zip(axes.flat, sorted(layers.items())):
        steps = sorted(layer)
        loads = [[count * len(layer[step].counts) / (sum(layer[step].counts) or 1)
                  for count in layer[step].counts] for step in steps]
        image = axis.imshow(list(zip(*loads)), vmin=0, vmax=highest, cmap="Blues",
                            aspect="auto", origin="lower", interpolation="nearest")
        labeled = range(0, len(steps), (len(steps) + 7) // 8)  # at most 8
        axis.set_xticks(labeled, [str(steps[i]) for i in labeled])
        axis.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axis.set(title=f"layer {number}", xlabel="step", ylabel="expert")
    for axis in axes.flat[len(layers):]:
        axis.set_axis_off()
    figure.colorbar(image, ax=axes, label="tokens / mean")
    _picture.save(figure, path)


def _report(files: Sequence[str], hot: int, as_json: bool, plot: Optional[str]) -> None:
    for path in files:
        if plot and os.path.exists(plot) and os.path.samefile(path, plot):
            raise ValueError(f"--plot: got {plot}, expected a file other than {path}, "
                             "which is read")
    layers: Layers = {}
    for path in files:
        _read(path, layers)
    if not layers:
        raise ValueError(f"{files[0]}: got no counts, expected at least one line")
    if plot:
        _draw(layers, plot)
    for number, layer in sorted(layers.items()):
        summary = _summary(number, layer, hot)
        print(json.dumps(summary) if as_json else _text(layer, summary))


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer of at "
                                         "least 1")
    return int(text)


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Runs the command line, by default the program's. Ends with exit code 2 for a bad
    file or option, and one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m swamp_torch.moe")
    report = parser.add_subparsers(title="commands", required=True, metavar="COMMAND"
                                   ).add_parser(
        "report", help="the tokens of each expert, by layer and step",
        description=__doc__)
    report.add_argument("files", metavar="FILE", nargs="+",
                        help="lines of JSON, layer-N_STEP.npy, or a folder of these")
    report.add_argument("--hot", metavar="N", type=_count, default=2,
                        help="how many hot experts are named (default: 2)")
    report.add_argument("--json", dest="as_json", action="store_true",
                        help="print a line of JSON for each layer")
    report.add_argument("--plot", metavar="PATH",
                        help="draw experts over steps as a .png, .svg or .pdf (needs "
                        "matplotlib)")
    try:
        _report(**vars(parser.parse_args(arguments)))
    except (ValueError, OSError, ImportError) as error:
        print(f"{report.prog}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
