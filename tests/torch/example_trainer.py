"""The Trainer of Hugging Face's transformers, in bfloat16, with swamp's AdamW."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import swamp_torch

swamp_torch.enable(half_precision=True)
torch.manual_seed(0)
# Yours: AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
model = swamp_torch.transformers.apply(LlamaForCausalLM(LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
    num_attention_heads=4)).bfloat16())
with open(__file__, "rb") as file:  # yours: a tokenizer and a data set
    text = torch.tensor(list(file.read()))
rows = [dict(input_ids=ids, labels=ids) for ids in text[:len(text) // 64 * 64].view(-1, 64)]
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model, TrainingArguments(
            folder, max_steps=40, per_device_train_batch_size=8, use_cpu=True,
            max_grad_norm=0.0,  # the optimizer clips, in its own pass
            logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True),
        train_dataset=rows,
        optimizer_cls_and_kwargs=(swamp_torch.AdamW, dict(lr=2e-3, max_norm=1.0)))
    trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(f"losses {losses}")
