import torch

from swamp_torch import float8

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                            torch.nn.Linear(256, 64))
config = float8.Float8LinearConfig.from_recipe_name("mxfp8")
float8.convert_to_float8_training(model, config=config)
with float8.recording(model):
    model(torch.randn(32, 64)).square().mean().backward()
float8.report(model)  # amax, scale, saturated, flushed, signal to noise
