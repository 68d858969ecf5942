"""The wheel's version and dependencies, for scikit-build-core: a wheel fits the
minor versions of PyTorch of SWAMP_TORCH_PYTHON and WHEEL_TORCH_FOLDERS."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, List, Tuple, Union

_ROOT = Path(__file__).resolve().parents[3]


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, pattern
    return match[1]


def _torch_minors() -> List[Tuple[int, int]]:
    python = os.environ.get("SWAMP_TORCH_PYTHON")
    if not python:
        raise RuntimeError(
            "SWAMP_TORCH_PYTHON is not set. It must name the python whose PyTorch "
            "swamp_torch is built for; toolchain/wheel sets it.")
    done = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"SWAMP_TORCH_PYTHON={python} cannot import torch")
    versions = [done.stdout]
    for folder in filter(None, os.environ.get("WHEEL_TORCH_FOLDERS", "").split(";")):
        text = (Path(folder) / "version.py").read_text()
        versions.append(_found("^__version__ = '(.*)'", text))
    return sorted((int(major), int(minor)) for major, minor, *_ in
                  (version.split(".") for version in versions))


def _requirement(minors: List[Tuple[int, int]]) -> str:
    """From the oldest to the newest version, without the gaps between them."""
    major = minors[0][0]
    first, last = minors[0][1], minors[-1][1]
    gaps = [f",!={major}.{minor}.*" for minor in range(first, last)
            if (major, minor) not in minors]
    return f"torch>={major}.{first},<{major}.{last + 1}" + "".join(gaps)


def dynamic_metadata(field: str, settings: Any = None,
                     project: Any = None) -> Union[str, List[str]]:
    if field == "version":
        return _found(r"project\(swamp VERSION ([0-9.]+)",
                      (_ROOT / "CMakeLists.txt").read_text())
    return [_requirement(_torch_minors())]
