"""Training has the bits of generation with reproducible=True: a model computed in
pieces with a cache of keys and values, in any batch and on any number of threads, has
the bits of the whole sequence in one call."""

import importlib.util
import random
import unittest

from support import TestCase, a_fifth, main

import torch

import example_generate as example
import swamp_torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def in_pieces(policy, tokens, sizes):
    """The log-probabilities of all tokens, computed `sizes` at a time with a cache."""
    cache, found, at = [], [], 0
    for size in sizes:
        found.append(policy(tokens[:, at:at + size], cache))
        at += size
    return torch.cat(found, 1)


def pieces_of(rng, count):
    """Sizes whose sum is `count`: mostly single tokens."""
    sizes = [rng.randrange(1, count + 1)]
    while sum(sizes) < count:
        most = count - sum(sizes)
        sizes.append(min(most, rng.choice([1, 1, 1, 2, 7, 33])))
    return sizes


class Generation(TestCase):
    def setUp(self):
        swamp_torch.enable(reproducible=True)
        self.threads = torch.get_num_threads()

    def tearDown(self):
        torch.set_num_threads(self.threads)
        super().tearDown()

    def test_pieces_batches_and_threads(self):
        rng, compared = random.Random(0), 0
        for case, dtype in a_fifth([(i, dtype) for i in range(20) for dtype in DTYPES]):
            torch.manual_seed(case)
            policy = example.Policy().to(dtype)
            batch, count = rng.choice([1, 2, 5]), rng.randrange(2, 300)
            tokens = torch.randint(example.VOCABULARY, (batch, count))
            message = (case, dtype, batch, count)
            with torch.no_grad():
                torch.set_num_threads(1)
                whole = policy(tokens)
                torch.set_num_threads(2)
                self.assert_same(in_pieces(policy, tokens, pieces_of(rng, count)), whole,
                                 message)
                # One alone, in another order, and before padding.
                one = rng.randrange(batch)
                self.assert_same(policy(tokens[one:one + 1]), whole[one:one + 1], message)
                padded = torch.nn.functional.pad(tokens.flip(0), (0, rng.randrange(40)))
                self.assert_same(policy(padded)[:, :count].flip(0), whole, message)
            # The pass that has a gradient has the same bits.
            self.assert_same(policy(tokens).detach(), whole, message)
            compared += 3 * whole.numel()
        self.assertGreater(compared, 10 ** 6)

    def test_packed(self):
        """Attention of sequences in one row, which a mask separates: alone, and if each
        begins at a multiple of 32, they have the same bits."""
        rng = random.Random(1)
        for case, dtype in [(i, dtype) for i in range(6) for dtype in DTYPES]:
            torch.manual_seed(case)
            columns = rng.choice([16, 40, 64, 128])
            sizes = [rng.randrange(1, 100) for _ in range(4)]
            begins = [0]
            for size in sizes:
                begins.append((begins[-1] + size + 31) // 32 * 32)
            q, k, v = (torch.randn(1, heads, begins[-1], columns).to(dtype)
                       for heads in (4, 2, 2))
            mask = torch.zeros(begins[-1], begins[-1], dtype=torch.bool)
            for begin, size in zip(begins, sizes):
                mask[begin:begin + size, begin:begin + size].fill_(True).tril_()
            packed = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, enable_gqa=True)
            for begin, size in zip(begins, sizes):
                alone = torch.nn.functional.scaled_dot_product_attention(
                    *(x[:, :, begin:begin + size] for x in (q, k, v)),
                    is_causal=True, enable_gqa=True)
                self.assert_same(packed[:, :, begin:begin + size], alone,
                                 (case, dtype, begin, size))

    def test_stock_differs(self):
        """What this is for: with PyTorch's own kernels the bits differ."""
        swamp_torch.disable()
        torch.manual_seed(0)
        policy = example.Policy()
        tokens = torch.randint(example.VOCABULARY, (4, 96))
        with torch.no_grad():
            self.assertFalse(torch.equal(in_pieces(policy, tokens, [1] * 96),
                                         policy(tokens)))

    @unittest.skipIf(importlib.util.find_spec("transformers") is None,
                     "transformers is not installed (toolchain/torch-clients)")
    def test_transformers(self):
        """generate() with its cache, of LLaMA and Qwen3, against one call; LLaMA also
        compiled, with a cache whose size is fixed."""
        import transformers as hf
        sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=176,
                     num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     head_dim=16, max_position_embeddings=256, pad_token_id=0,
                     bos_token_id=1, eos_token_id=None)
        for config, model, compiles in ((hf.LlamaConfig, hf.LlamaForCausalLM, False),
                                        (hf.Qwen3Config, hf.Qwen3ForCausalLM, False),
                                        (hf.LlamaConfig, hf.LlamaForCausalLM, True)):
            for dtype in DTYPES[:2] if compiles else DTYPES:
                torch.manual_seed(0)
                policy = model(config(**sizes)).to(dtype).eval()
                prompt = torch.randint(3, 300, (3, 17))
                whole, more = policy.forward, {}
                if compiles:
                    swamp_torch.transformers.apply(policy)
                    rotary = policy.model.rotary_emb
                    rotary.forward = torch.compiler.disable(rotary.forward)
                    policy.compile(options={"emulate_precision_casts": True})
                    more["cache_implementation"] = "static"
                out = policy.generate(prompt, attention_mask=torch.ones_like(prompt),
                                      do_sample=True, max_new_tokens=60,
                                      output_logits=True, return_dict_in_generate=True,
                                      **more)
                sampled = torch.stack(out.logits, 1).log_softmax(-1)
                scored = whole(out.sequences).logits[:, 16:-1].log_softmax(-1)
                self.assert_same(scored.detach(), sampled.to(scored.dtype),
                                 (model.__name__, dtype, compiles))


if __name__ == "__main__":
    main()
