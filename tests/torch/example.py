import sys

import torch

torch.ops.load_library(sys.argv[1])  # from here on the CPU's operators are swamp's

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                            torch.nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 32)
for step in range(20):
    x = torch.randn(32, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    grads = [p.grad for p in model.parameters()]
    found_inf = torch.ops.swamp.any_nonfinite(grads)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step}: found_inf {found_inf.item():g}, "
          f"next scale {scaler.get_scale():g}")
