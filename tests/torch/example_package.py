import torch

import swamp_torch  # from here on the CPU's operators are swamp's

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                            torch.nn.Linear(256, 64)).bfloat16()
optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3, max_norm=1.0)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127)
for step in range(5):
    x = torch.randn(32, 64, dtype=torch.bfloat16)
    loss = (model(x) - x).float().square().sum()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # unscales, clips, takes the step, rounds
    scaler.update()
    print(f"step {step}: skipped {optimizer.skipped}, "
          f"next scale {scaler.get_scale():g}")
