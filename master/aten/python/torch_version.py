"""The wheel's version and dependencies, for scikit-build-core: a wheel fits one
version of PyTorch, that of SWAMP_TORCH_PYTHON."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, List, Union

_ROOT = Path(__file__).resolve().parents[3]


def _torch_version() -> str:
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
    return done.stdout.strip().split("+")[0]


def _swamp_version() -> str:
    text = (_ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"project\(swamp VERSION ([0-9.]+)", text)
    assert found is not None
    return found.group(1)


def dynamic_metadata(field: str, settings: Any = None,
                     project: Any = None) -> Union[str, List[str]]:
    torch = _torch_version()
    if field == "version":
        return f"{_swamp_version()}+torch{torch}"
    return [f"torch=={torch}"]
