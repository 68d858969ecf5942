"""Fine-tunes a language model of Hugging Face's transformers in bfloat16."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import swamp_torch

swamp_torch.enable(half_precision=True)  # products, attention, norms
torch.manual_seed(0)
# Yours: AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=4)).bfloat16()
swamp_torch.transformers.apply(model)  # the loss without logits, gated MLPs
# Float32 masters: small steps are not lost. See the README for less memory.
optimizer = swamp_torch.AdamW(model.parameters(), lr=2e-3, max_norm=1.0)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)

with open(__file__, "rb") as file:  # yours: a tokenizer and a data set
    text = torch.tensor(list(file.read()))
for step in range(60):
    starts = torch.randint(len(text) - 64, (8,))
    ids = torch.stack([text[start:start + 64] for start in starts])
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step in (0, 59):
        print(f"step {step}: loss {loss.item():.3f}, "
              f"gradients' norm {optimizer.grad_norm:.3f}")
