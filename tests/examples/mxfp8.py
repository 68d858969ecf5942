import json
import numpy as np

codes = np.arange(127)  # of e4m3, and their values
values = np.where(codes < 8, codes / 8, 1 + codes % 8 / 8) * 2.0 ** (
    np.maximum(codes // 8, 1) - 7)
middles = (values[1:] + values[:-1]) / 2
rng = np.random.default_rng(0)  # numbers of 8 bits, so that there are ties
x = rng.integers(-255, 256, (8, 64)) * 2.0 ** rng.integers(-9, 9, (8, 64))
blocks = x.reshape(-1, 32)
exponents = np.floor(np.log2(abs(blocks).max(1))) - 8  # OCP's rule
scaled = abs(blocks) / 2 ** exponents[:, None]
below, above = (np.searchsorted(middles, scaled, side) for side in ("left", "right"))
nearest = np.where(below % 2 == 0, below, above) + 128 * (blocks < 0)  # ties to even
print(json.dumps({
    "recipe": "torchao.mx", "mode": "floor", "fmt": "e4m3",
    "input": {"rows": 8, "cols": 64, "f32": x.astype(">f4").tobytes().hex()},
    "scales": (exponents + 127).astype("u1").tobytes().hex(),
    "codes": nearest.astype("u1").tobytes().hex()}))
