"""The table and the picture of what was measured."""
import pathlib
import subprocess

from lists import LISTS

BEGIN = "<!-- peers: made by bench/peers/run, not by hand -->"
END = "<!-- end of peers -->"
PEERS = ["roof", "swamp", "torch fused", "torch foreach", "DeepSpeed",
         "OpenMP loop", "Eigen"]


def number(milliseconds):
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f}"


def cells(row):
    return "| " + " | ".join(row) + " |\n"


def table(results):
    facts = results["facts"]
    peers = [p for p in PEERS
             if any(p in times for times in results["steps"].values())]
    versions = ", ".join(f"{n} {v}" for n, v in facts["versions"].items())
    text = (f"Milliseconds of one step, {facts['cpu']}, {facts['threads']} "
            f"threads, {versions}, {facts['date']}. *Roof* is a plain loop that only "
            "moves the bytes of the two passes, through the caches; *of fused* is PyTorch's fused "
            "step over swamp's.\n\n")
    text += cells(["parameters", "gradients", "clip"] + peers + ["of fused"])
    text += cells(["---"] * 3 + ["--:"] * (len(peers) + 1))
    for key, times in results["steps"].items():
        name, dtype, clip = key.split("/")
        row = [LISTS[name][0], dtype, "yes" if clip == "clip" else "no"]
        row += [number(times[p]) if p in times else "" for p in peers]
        row.append(f"{times['torch fused'] / times['swamp']:.2f}x")
        text += cells(row)
    text += "\n" + cells(["one pass", "parameters", "swamp", "peer", "ratio"])
    text += cells(["---"] * 2 + ["--:"] * 3)
    for key, times in results["kernels"].items():
        name, kernel = key.split("/")
        text += cells([kernel, LISTS[name][0], number(times["swamp"]),
                       number(times["peer"]),
                       f"{times['peer'] / times['swamp']:.2f}x"])
    return text


def picture(results, out):
    """Bars against the roof: each step's time over the least the memory
    allows, of the largest lists with clipping."""
    keys = [k for k in results["steps"] if k.endswith("/clip")
            and not k.startswith("tiny")]
    peers = [p for p in PEERS[1:] if all(p in results["steps"][k]
                                         for k in keys)]
    if not keys or not peers:
        return False
    rows = ['label ' + " ".join(f'"{p}"' for p in peers)]
    for key in keys:
        times = results["steps"][key]
        name, dtype, _ = key.split("/")
        rows.append(f'"{LISTS[name][0]}\\n{dtype}" ' + " ".join(
            f"{times[p] / times['roof']:.4f}" for p in peers))
    data = out / "steps.dat"
    data.write_text("\n".join(rows) + "\n")
    script = f"""
set terminal svg size 1100,420 font "sans,12" background "white"
set output "{out}/steps.svg"
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.9 border -1
set boxwidth 0.95
set logscale y 2
set yrange [0.5:*]
set ylabel "time of a step with clipping, of the roof's"
set grid ytics
set key outside top horizontal
set bmargin 4
set arrow from graph 0, first 1 to graph 1, first 1 nohead lw 2 dt 2 front
plot for [i=2:{len(peers) + 1}] "{data}" using i:xtic(1) title columnheader(i)
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    return True


def write(results, out, readme):
    text = table(results)
    (out / "table.md").write_text(text)
    drawn = picture(results, out)
    print(text)
    if not readme:
        return
    if drawn:
        pathlib.Path("bench/peers/steps.svg").write_bytes(
            (out / "steps.svg").read_bytes())
        text += "\n![time of a step over the roof's](bench/peers/steps.svg)\n"
    page = pathlib.Path("README.md")
    old = page.read_text()
    before, rest = old.split(BEGIN)
    page.write_text(before + BEGIN + "\n\n" + text + "\n" + END +
                    rest.split(END)[1])
