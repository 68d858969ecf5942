"""python -m swamp_torch.moe report: text, JSON, pictures, and lines that are refused."""

import contextlib
import importlib.util
import io
import json
import math
import os
import tempfile

from support import TestCase, main, python

import numpy

from swamp_torch.moe import __main__ as report


LINES = """{"step": 10, "layer": 1, "counts": [4, 0, 2, 2], "dropped": 1}

{"step": 20, "layer": 1, "counts": [1, 3, 3, 1], "dropped": 0}\r
{"step": 10, "layer": 0, "counts": [0, 0], "rank": -1}
"""
# A second line, after one of step 1, layer 0 and two experts, and its error.
BAD_LINES = [
    ("[1]", "got no JSON object, expected step, layer and counts"),
    ('{"step": 2, "layer": 1}', "counts: missing, expected step"),
    ('{"step": -2, "layer": 1, "counts": [1]}',
     "step: got -2, expected an integer of at least 0"),
    ('{"step": true, "layer": 1, "counts": [1]}', "step: got True, expected"),
    ('{"step": 2, "layer": "x", "counts": [1]}', "layer: got 'x', expected"),
    ('{"step": 2, "layer": 1, "counts": 3}',
     "counts: got 3, expected an array with a number for each expert"),
    ('{"step": 2, "layer": 1, "counts": []}', "counts: got [], expected"),
    ('{"step": 2, "layer": 1, "counts": [4, 1.5]}', "counts[1]: got 1.5, expected"),
    ('{"step": 2, "layer": 1, "counts": [4, 1], "dropped": 6}',
     "dropped: got 6, expected at most 5, the sum of counts"),
    ('{"step": 2, "layer": 0, "counts": [4]}',
     "counts: got 1 experts, expected 2, as step 1 of layer 0 has"),
    ('{"step": 1, "layer": 0, "counts": [4, 2]}',
     "step: got 1 of layer 0 twice, expected each step once"),
    ('{"step": 1,', "Expecting property name"),
    ("[" * 100000, ""),
    ("\xff", ""),
    ('{"step": 2, "layer": 1, "layer": 0, "counts": [4, 2]}',
     "got the keys ['step', 'layer', 'layer', 'counts'], expected each once")]


class Report(TestCase):
    """python -m swamp_torch.moe report"""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            if isinstance(content, str):
                file.write(content.encode("latin1"))
            else:
                numpy.save(file, content)
        return path

    def run_report(self, *arguments):
        """The exit code, standard output and standard error."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                report.main(["report", *arguments])
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()

    def objects(self, *arguments):
        code, out, err = self.run_report("--json", *arguments)
        self.assertEqual((code, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def expect_error(self, arguments, *parts):
        code, out, err = self.run_report(*arguments)
        self.assertEqual((code, out), (2, ""))
        for part in parts:
            self.assertIn(part, err)

    def test_text(self):
        path = self.write("lines", LINES)
        ran = python("import runpy, sys, warnings\nwarnings.simplefilter('error')\n"
                     f"sys.argv = ['moe', 'report', {path!r}]\n"
                     "runpy.run_module('swamp_torch.moe', run_name='__main__')")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(ran.stdout, """\
layer 0: 2 experts, 1 step (10 to 10)
  tokens by expert:  0: 0  1: 0
  imbalance (max / mean): 1.000 on average, 1.000 in step 10, at most 1.000
    in step 10
  hot experts of step 10:  0: 0  1: 0
  hot experts of all steps:  0: 0  1: 0
layer 1: 4 experts, 2 steps (10 to 20)
  tokens by expert:  0: 5  1: 3  2: 5  3: 3
  imbalance (max / mean): 1.750 on average, 1.500 in step 20, at most 2.000
    in step 10
  dropped: 1 of 16 tokens, 6.25 %
  hot experts of step 20:  1: 3  2: 3
  hot experts of all steps:  0: 5  2: 5
""")
        many = self.write("many", json.dumps(
            {"step": 1, "layer": 0, "counts": [10 ** 6] * 64}))
        lines = self.run_report(many)[1].splitlines()
        self.assertEqual(max(map(len, lines)), 80)
        self.assertEqual(lines[2], "    5: 1000000  6: 1000000  7: 1000000  8: 1000000"
                         "  9: 1000000  10: 1000000")

    def test_json(self):
        lines = self.objects("--hot", "3", self.write("lines", LINES))
        self.assertEqual([line["dropped"] for line in lines], [None, 1])
        self.assertEqual(lines[1], {
            "layer": 1, "experts": 4, "steps": 2, "first_step": 10, "last_step": 20,
            "tokens": [5, 3, 5, 3], "imbalance": 1.75, "last_imbalance": 1.5,
            "highest_imbalance": 2.0, "highest_imbalance_step": 10, "dropped": 1,
            "drop_rate": 0.0625, "hot": [1, 2, 0], "all_hot": [0, 2, 1]})

    def test_mindformers(self):
        for name, counts in (
                ("layer-0_7", numpy.array([3, 1, 500])),
                ("layer-0_12", numpy.array([0, 2, 2], "f4")),
                ("layer-1_7", numpy.array([2, 1], "f2")),
                ("layer-2_7", numpy.array([2, 256], ">i2")),
                ("other", "not read")):
            self.write(f"{name}.npy", counts)
        lines = self.objects(self.folder)
        self.assertEqual([line["tokens"] for line in lines],
                         [[3, 3, 502], [2, 1], [2, 256]])
        self.assertEqual(lines[0]["last_step"], 12)
        # Files and lines together.
        more = self.write("more", '{"step": 8, "layer": 1, "counts": [0, 9]}')
        [line] = self.objects(more, f"{self.folder}/layer-1_7.npy")
        self.assertEqual(line["tokens"], [2, 10])

    def test_bad_lines(self):
        for line, error in BAD_LINES:
            path = self.write("lines", '{"step": 1, "layer": 0, "counts": [1, 2]}\n'
                              f"{line}\n")
            self.expect_error([path], path + ":2: ", error)
        for nothing in "", "\n":
            self.expect_error([self.write("lines", nothing)],
                              "lines: got no counts, expected at least one line")

    def test_large_counts(self):
        """Sums are exact, so nothing overflows."""
        path = self.write("lines", json.dumps(
            {"step": 1, "layer": 0, "counts": [2 ** 64] * 4 + [1], "dropped": 2 ** 65}))
        [line] = self.objects(path)
        self.assertEqual(line["tokens"], [2 ** 64] * 4 + [1])
        self.assertEqual((line["imbalance"], line["drop_rate"]), (1.25, 0.5))

    def test_bad_files(self):
        self.expect_error([self.folder], "got a folder without counts, expected files "
                          "of the names layer-N_STEP.npy")
        self.expect_error([self.folder + "/none"], "/none")
        for name in "counts.npy", "layer-_1.npy", "layer-1_x.npy":
            self.expect_error([self.write(name, numpy.array([3, 1]))], name,
                              "expected layer-N_STEP.npy")
        for counts, error in (
                (numpy.array([3, -1]), "counts[1]: got -1, expected an integer"),
                (numpy.array([0.5]), "counts[0]: got 0.5, expected"),
                (numpy.array([math.nan]), "counts[0]: got nan, expected"),
                (numpy.array([[3, 1]]), "counts: got int64 [1, 2]"),
                (numpy.array([3j]), "counts: got complex128"),
                (numpy.array([True]), "counts: got bool"),
                (numpy.array([], int), "counts: got [], expected"),
                (numpy.array([{}]), "allow_pickle"), ("", "")):
            path = self.write("layer-0_1.npy", counts)
            self.expect_error([path], path + ": ", error)
        path = self.write("layer-0_1.npy", numpy.array([3, 1]))
        os.truncate(path, os.path.getsize(path) - 1)
        self.expect_error([path], path + ": ")

    def test_bad_options(self):
        path = self.write("lines", LINES)
        self.expect_error([], "FILE")
        self.expect_error(["--hot", "0", path], "--hot: got '0'")
        self.expect_error(["--plot", path, path], "--plot: got " + path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), LINES.encode())

    def test_picture(self):
        # Also one step and one expert alone.
        path = self.write("lines", LINES + "".join(
            f'{{"step": {step}, "layer": {layer}, "counts": [5]}}\n'
            for step, layer in ((10, 2), (10, 3), (20, 3))))
        picture = self.folder + "/picture.svg"
        if importlib.util.find_spec("matplotlib") is None:
            self.expect_error(["--plot", picture, path], "plot: ", "matplotlib")
            self.assertFalse(os.path.exists(picture))
            self.skipTest("no matplotlib")
        self.assertEqual(self.run_report("--plot", picture, path)[0], 0)
        with open(picture) as file:
            svg = file.read()
        for part in "<svg", ">layer 0<", ">layer 3<", ">expert<", "</svg>":
            self.assertIn(part, svg)
        self.assertEqual(svg.count("<image "), 5)  # one is the bar of colors
        self.expect_error(["--plot", self.folder + "/picture.xyz", path], "xyz")


if __name__ == "__main__":
    main()
