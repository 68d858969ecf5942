"""The CPU that a document names, and how much of it other processes used."""
import os
import pathlib
import re
import sys
import time

PROC = pathlib.Path("/proc")
LIMIT = 0.05  # of a core: with more, no document is written

# Family, first and last model of AMD's CPUs. Intel's and others' model names say
# which they are.
GENERATIONS = ((25, 16, 31, "Zen 4"), (25, 96, 127, "Zen 4"), (26, 0, 255, "Zen 5"))


def cpu():
    """The name, family and model of the CPU, as lscpu prints them, and the
    generation, if they tell it: virtual machines are called "AMD EPYC"."""
    about = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$",
                            (PROC / "cpuinfo").read_text(), re.M))
    name = about.get("model name", os.uname().machine)
    if "cpu family" not in about:
        return name
    family, model = int(about["cpu family"]), int(about["model"])
    text = f"{name} family {family} model {model}"
    for of, first, last, generation in GENERATIONS if "AMD" in name else ():
        if family == of and first <= model <= last:
            text += f" ({generation})"
    return text


def _ticks():
    """The processor time of all processes but this one and its descendants."""
    fields = [int(x) for x in (PROC / "stat").read_text().split("\n")[0].split()[1:]]
    ticks = sum(fields[:3]) + sum(fields[5:8])  # neither idle nor waiting
    parents, times = {}, {}
    for folder in PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        stat = text.rsplit(")", 1)[1].split()
        parents[int(folder.name)] = int(stat[1])
        # Its own time and that of the children that it has waited for.
        times[int(folder.name)] = sum(map(int, stat[11:15]))
    for pid, own in times.items():
        at = pid
        while at not in (0, os.getpid()):
            at = parents.get(at, 0)
        if at != 0:
            ticks -= own
    return ticks


class Others:
    """Measures other processes from now on."""

    def __init__(self):
        self._start, self._ticks = time.monotonic(), _ticks()

    def share(self):
        """How many cores they have used, on average."""
        seconds = max(time.monotonic() - self._start, 0.01)
        used = (_ticks() - self._ticks) / os.sysconf("SC_CLK_TCK")
        return max(0.0, used / seconds)


def require_alone(program, share):
    """Ends the program if other processes used too much for a document."""
    if share > LIMIT:
        sys.exit(f"{program}: other processes used {share:.2f} of a core meanwhile, "
                 f"expected at most {LIMIT:g}; no document was written")
