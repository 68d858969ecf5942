"""Samples from a model with a cache of keys and values, scores the sample with one pass
over all tokens, and takes a policy-gradient step. With reproducible=True both passes
have the same bits, so the ratio of the probabilities is exactly 1 in every step."""

import torch
import torch.nn.functional as F

import swamp_torch

VOCABULARY, WIDTH, HEADS, LAYERS = 128, 64, 4, 2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = torch.nn.Linear(WIDTH, 8 * WIDTH, bias=False)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x, past=None):
        """x: [batch, tokens, WIDTH]; past: keys and values of earlier tokens. Returns
        the output, and the keys and values of all tokens."""
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        seen = torch.ones(t, k.size(2), dtype=torch.bool).tril(k.size(2) - t)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up), (k, v)


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, cache=None):
        """The log-probabilities of each next token. `cache` is a list, empty at first."""
        x = self.embed(tokens)
        past = list(cache or [None] * LAYERS)
        for i, block in enumerate(self.blocks):
            x, past[i] = block(x, past[i])
        if cache is not None:
            cache[:] = past
        return F.log_softmax(self.head(x), -1)


def sample(policy, prompt, count):
    """Tokens [batch, prompt + count], and the log-probability of each new one."""
    tokens, found, cache = prompt, [], []
    with torch.no_grad():
        for _ in range(count):
            last = tokens[:, -1:] if cache else tokens
            logprob = policy(last, cache)[:, -1]
            token = torch.multinomial(logprob.float().exp(), 1)
            found.append(logprob.gather(1, token))
            tokens = torch.cat([tokens, token], 1)
    return tokens, torch.cat(found, 1)


if __name__ == "__main__":
    swamp_torch.enable(reproducible=True)
    torch.manual_seed(0)
    policy = Policy().bfloat16()
    optimizer = swamp_torch.AdamW(policy.parameters(), lr=1e-3)
    for step in range(5):
        tokens, sampled = sample(policy, torch.randint(VOCABULARY, (8, 4)), 28)
        reward = (tokens[:, 4:] % 2 == 0).float()  # even tokens are good
        scored = policy(tokens[:, :-1])[:, 3:].gather(2, tokens[:, 4:, None])[..., 0]
        ratio = (scored - sampled).float().exp()
        loss = -(ratio * (reward - reward.mean())).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: reward {reward.mean():.3f}, ratios that are not 1: "
              f"{(ratio != 1).sum()} of {ratio.numel()}")
