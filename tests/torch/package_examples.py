"""What the examples of the READMEs print; of those of other packages, if these are
installed (toolchain/torch-clients)."""

import pathlib
import re
import unittest

from support import main, python

HERE = pathlib.Path(__file__).parent
# example_NAME.py: what is in its output
EXAMPLES = {
    "package": "^" + re.escape((HERE / "example_package.txt").read_text()) + r"\Z",
    "half": r"^skipped False, gradients' norm [0-9.]+\n\Z",
    "float8": r"\n2  grad_weight +[0-9.]+\n",
    "generate": "".join(fr"step {step}: reward [0-9.]+, ratios that are not 1: 0 of 224\n"
                        for step in range(5)) + r"\Z",
    "inference": r"10 tokens, then [0-9]+ new ones\n\Z",
    "finetune": r"step 0: loss 5[.].*\nstep 59: loss [23][.][^\n]*\n\Z",
    "trainer": r"losses .[45][.][0-9]+, [23][.][0-9]+.\n\Z",
    "lora": r"step 0: loss 5[.].*\nstep 59: loss [45][.][^\n]*, 20 tensors learn\n\Z",
}
MISSING = r"No module named '(transformers|peft)'|requires `accelerate"


class Examples(unittest.TestCase):
    def test_output(self):
        self.assertEqual(set(EXAMPLES), {
            path.stem.removeprefix("example_") for path in HERE.glob("example_*.py")})
        for name, printed in EXAMPLES.items():
            path = HERE / f"example_{name}.py"
            with self.subTest(name):
                done = python(f"import runpy\nrunpy.run_path({str(path)!r}, None, '__main__')")
                if done.returncode != 0 and re.search(MISSING, done.stderr):
                    self.skipTest("transformers, peft or accelerate is not installed")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, re.compile(printed, re.DOTALL))


if __name__ == "__main__":
    main()
