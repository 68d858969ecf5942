"""Loads the libswamp_aten that was built for this version of PyTorch."""

import os
import re
import sys
import warnings

from . import _build

__version__: str = _build.VERSION

_MINORS = sorted(_build.LIBRARIES,
                 key=lambda minor: [int(part) for part in minor.split(".")])


def _why_not(found: str) -> str:
    """One line for an import that fails."""
    return (f"swamp_torch {__version__}: {sys.executable} has {found}, expected PyTorch "
            f"{' or '.join(_MINORS)}: `pip install torch=={_MINORS[-1]}.*`, or build "
            "swamp_torch for yours: `pip install --no-build-isolation .` in its sources")


def library_for(found: str, where: str) -> str:
    """The path of the library for a version of PyTorch.

    ATen's C++ interface is the same in all releases of one minor version, and
    differs between these: the library of another one fails to load or crashes.

    Args:
        found: the version of PyTorch, as ``torch.__version__``.
        where: its folder, for the text.

    Raises:
        ImportError: no library of this package fits; with instructions.
    """
    release = re.match(r"(\d+\.\d+)\.\d+(\+.*)?$", found)
    if release and release[1] in _build.LIBRARIES:
        here = os.path.dirname(os.path.abspath(__file__))
        return os.path.join(here, _build.LIBRARIES[release[1]])
    raise ImportError(_why_not(f"PyTorch {found} ({where})"))


def load() -> None:
    """Loads the library, once; prints nothing. Warns of variables SWAMP_* in the
    environment that swamp does not know.

    Raises:
        ImportError: no PyTorch, or not a version this was built for; or another
            build of libswamp_aten is loaded that is too old.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(_why_not("no PyTorch")) from None
    path = library_for(torch.__version__, os.path.dirname(torch.__file__))
    # A second copy of the library would register the operators twice, which ends
    # the process, so use a copy that is already loaded.
    if not hasattr(torch.ops.swamp, "version"):
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    if not hasattr(torch.ops.swamp, "unknown_variables"):
        raise ImportError(
            "another libswamp_aten has been loaded, too old for swamp_torch "
            f"{__version__}: import swamp_torch instead of it, or before it.")
    warning = torch.ops.swamp.unknown_variables()
    if warning:
        warnings.warn(warning.removeprefix("swamp: warning: "), stacklevel=3)
