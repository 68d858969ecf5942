import torch
from transformers import LlamaConfig, LlamaForCausalLM

import swamp_torch

swamp_torch.enable(half_precision=True)
# Yours: AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=4)).bfloat16().eval()
swamp_torch.transformers.apply(model)  # norms and gated MLPs in one operator each
prompt = torch.tensor([list(b"A CPU can ")])
tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt),
                        max_new_tokens=16, do_sample=False, pad_token_id=0)
print(f"{prompt.size(1)} tokens, then {tokens.size(1) - prompt.size(1)} new ones")
