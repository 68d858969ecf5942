"""Loads libswamp_aten into the PyTorch that it was built for."""

import os

from . import _build

__version__: str = _build.VERSION

_HOW_TO_BUILD = ("build swamp_torch for yours with swamp's "
                 "`SWAMP_TORCH_PYTHON=/path/to/python toolchain/wheel`")


def require_version(found: str, where: str) -> None:
    """Raises ImportError, with instructions, unless PyTorch is the version that
    this was built for: the library of another version fails to load or crashes.

    Args:
        found: the version of PyTorch, as ``torch.__version__``. What follows a
            ``+`` is ignored.
        where: its folder, for the text.
    """
    if found.split("+")[0] == _build.TORCH:
        return
    raise ImportError(
        f"swamp_torch {__version__} was built for PyTorch {_build.TORCH}, and "
        f"this is PyTorch {found} ({where}). Install the one it was built for, "
        f"`pip install torch=={_build.TORCH}`, or {_HOW_TO_BUILD}.")


def load() -> None:
    """Loads the library, once; prints nothing.

    Raises:
        ImportError: no PyTorch, or not the version this was built for; or
            another build of libswamp_aten is loaded that is too old.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"swamp_torch {__version__} needs PyTorch {_build.TORCH}, and there "
            f"is none: `pip install torch=={_build.TORCH}`.") from error
    require_version(torch.__version__, os.path.dirname(torch.__file__))
    # A second copy of the library would register the operators twice, which ends
    # the process, so use a copy that is already loaded.
    if not hasattr(torch.ops.swamp, "version"):
        here = os.path.dirname(os.path.abspath(__file__))
        path = os.path.join(here, _build.LIBRARY)
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    if not hasattr(torch.ops.swamp, "set_half_precision"):
        raise ImportError(
            "another libswamp_aten has been loaded, too old for swamp_torch "
            f"{__version__}: import swamp_torch instead of it, or before it.")
