"""Pictures of reports, drawn by matplotlib, which is imported when one is asked for."""

import io
import os
from typing import Any


def figure(width: float, height: float) -> Any:
    """Returns an empty figure of matplotlib; the sizes are inches.

    Raises:
        ImportError: matplotlib is missing; with instructions.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError("plot: pictures need matplotlib, which is not installed: "
                          "`pip install matplotlib`") from error
    return Figure((width, height), layout="constrained")


def save(drawn: Any, path: str) -> None:
    """Writes a figure in the format of the path's suffix, .png if it has none. A
    figure that cannot be drawn leaves the file as it was."""
    import matplotlib
    picture = io.BytesIO()
    # Words stay words in an SVG.
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        drawn.savefig(picture, format=os.path.splitext(path)[1][1:] or "png")
    with open(path, "wb") as file:
        file.write(picture.getvalue())
