"""What the tests of swamp_torch share. They take the folder that holds the
package, or - for the one that is installed."""

import os
import subprocess
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
try:
    import torch
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

built_for = os.environ.get("SWAMP_ATEN_TORCH", "")
if not torch.__version__.startswith(built_for):
    print(f"skipped: swamp_torch was built for PyTorch {built_for}, and this "
          f"python has {torch.__version__}")
    sys.exit(77)

FOLDER = sys.argv.pop(1)
if FOLDER != "-":
    sys.path.insert(0, FOLDER)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def python(code, **environment):
    """Runs code in a process of its own, which finds the package."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    if FOLDER != "-":
        env["PYTHONPATH"] = FOLDER
    return subprocess.run([sys.executable, "-c", code], env=env, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120)


def same(a, b):
    bits = BITS[a.element_size()]
    return a.dtype == b.dtype and a.shape == b.shape and bool(
        (a.detach().contiguous().view(bits)
         == b.detach().contiguous().view(bits)).all())
