import torch

import swamp_torch

swamp_torch.enable(half_precision=True)  # products, attention, loss, norms
model = torch.nn.Linear(64, 64).half()  # or .bfloat16()
optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3, max_norm=1.0)
scaler = torch.amp.GradScaler("cpu")
loss = model(torch.randn(8, 64).half()).float().square().mean()
scaler.scale(loss).backward()
scaler.step(optimizer)  # unscales, clips, takes the step, rounds the weights
scaler.update()
print(f"skipped {optimizer.skipped}, gradients' norm {optimizer.grad_norm:.1f}")
