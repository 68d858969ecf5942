"""LoRA of peft: frozen bfloat16 weights, a few float32 ones that learn."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import swamp_torch

swamp_torch.enable(half_precision=True)
torch.manual_seed(0)
# Yours: AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
model = swamp_torch.transformers.apply(LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=4)).bfloat16())  # before peft wraps it
model = get_peft_model(model, LoraConfig(
    r=8, target_modules=["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]))
learning = [p for p in model.parameters() if p.requires_grad]
optimizer = swamp_torch.AdamW(learning, lr=2e-2, max_norm=1.0)
with open(__file__, "rb") as file:  # yours: a tokenizer and a data set
    text = torch.tensor(list(file.read()))
for step in range(60):
    starts = torch.randint(len(text) - 64, (8,))
    ids = torch.stack([text[start:start + 64] for start in starts])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 59):
        print(f"step {step}: loss {loss.item():.3f}, {len(learning)} tensors learn")
