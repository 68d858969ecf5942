"""swamp_torch.transformers: models of Hugging Face's transformers, tiny and with random
weights, against unmodified ones and against float64."""

import contextlib
import copy
import functools
import importlib.util
import inspect
import io
import itertools
import sys
import tempfile
import unittest
import unittest.mock

from support import CI, TestCase, a_fifth, caught, declare_torchvision, main

import torch

if importlib.util.find_spec("transformers") is None:
    print("skipped: transformers is not installed (toolchain/torch-clients)")
    sys.exit(77)

declare_torchvision()
import transformers as hf
from torch.utils._python_dispatch import TorchDispatchMode

import swamp_torch
from swamp_torch.transformers import apply

VOCABULARY, TOKENS, WIDTH = 300, 48, 64
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=176,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=64,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
            eos_token_id=2)
BERT = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=128,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
EXPERTS = dict(LLAMA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
               output_router_logits=True)
T5 = dict(vocab_size=VOCABULARY, d_model=WIDTH, d_kv=16, d_ff=128, num_layers=2,
          num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)
# class, configuration, and the modules of which a method is replaced
CASES = {
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA), 5 + 2 + 1),
    "llama tied": (hf.LlamaForCausalLM,
                   hf.LlamaConfig(**LLAMA, tie_word_embeddings=True), 8),
    "llama gelu": (hf.LlamaForCausalLM,
                   hf.LlamaConfig(**LLAMA, hidden_act="gelu_new"), 5 + 2 + 2 + 1),
    "llama body": (hf.LlamaModel, hf.LlamaConfig(**LLAMA), 7),
    "llama classes": (hf.LlamaForSequenceClassification, hf.LlamaConfig(**LLAMA), 7),
    "mistral": (hf.MistralForCausalLM,
                hf.MistralConfig(**LLAMA, sliding_window=16), 8),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**LLAMA), 8),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**LLAMA, head_dim=16), 12),
    "gemma": (hf.GemmaForCausalLM, hf.GemmaConfig(**LLAMA, head_dim=16), 8),
    "gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**LLAMA, head_dim=16), 12),
    "gemma3": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**LLAMA, head_dim=16), 16),
    "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config(**LLAMA), 8),
    "olmo2": (hf.Olmo2ForCausalLM, hf.Olmo2Config(**LLAMA), 12),
    "mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig(
        **LLAMA, num_local_experts=4, output_router_logits=True), 8),
    "qwen2 moe": (hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(
        **EXPERTS, shared_expert_intermediate_size=80), 10),
    "qwen3 moe": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(**EXPERTS, head_dim=16), 12),
    "t5": (hf.T5ForConditionalGeneration, hf.T5Config(**T5), 12 + 1),
    "t5 gated": (hf.T5ForConditionalGeneration, hf.T5Config(
        **T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), 12 + 4 + 4 + 1),
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2), 2 + 1),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**BERT), 1),
    "bert decoder": (hf.BertLMHeadModel, hf.BertConfig(**BERT, is_decoder=True), 1),
}


def model_of(name, dtype=torch.float32):
    kind, config, _ = CASES[name]
    torch.manual_seed(3)
    model = kind(copy.deepcopy(config)).train()
    with torch.no_grad():
        for parameter in model.parameters():  # norms too have weights other than 1
            parameter.add_(torch.randn_like(parameter) * 0.02)
    if dtype is torch.float64 and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the others have no float64
    return model.to(dtype)


def has_loss(name):
    return CASES[name][0].__name__.endswith(("LM", "HeadModel", "Generation"))


def skips_logits(name):
    """Not those with a softcap."""
    return has_loss(name) and name != "gemma2"


def replaced_methods(model):
    return [method for module in model.modules() for method in vars(module).values()
            if inspect.ismethod(method)]


def inputs_of(name):
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(3, VOCABULARY, (2, TOKENS), generator=generator)
    labels = ids.clone()
    labels[0, :9] = -100
    inputs = dict(input_ids=ids)
    if has_loss(name):
        inputs["labels"] = labels
    elif name == "llama classes":
        inputs["labels"] = torch.tensor([0, 1])
    return inputs


def run(model, name, **more):
    """The gradients, loss and logits of a model."""
    model.zero_grad()
    out = model(**{**inputs_of(name), **more})
    loss = out[0].square().mean() if name == "llama body" else out[0]
    loss.backward()
    # Attention without positions does not depend on the bias of the keys.
    results = {key: p.grad for key, p in model.named_parameters()
               if p.grad is not None and not key.endswith("key.bias")}
    results["loss"] = loss
    if isinstance(out, dict) and out.get("logits") is not None:
        results["logits"] = out.logits
    return {key: x.detach() for key, x in results.items()}


@functools.cache
def plain_run(name, dtype):
    return run(model_of(name, dtype), name)


def error(x, exact):
    x, exact = x.detach().double(), exact.detach()
    return float((x - exact).norm() / exact.norm())


def training(name, dtype, change=lambda model: model, steps=100):
    """The losses of a model that learns the bytes of this file. 16-bit weights have
    float32 masters."""
    model = change(model_of(name, dtype))
    optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3)
    with open(__file__, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    losses = []
    for step in range(steps):
        ids = text[step * 2 * TOKENS:][:2 * TOKENS].view(2, TOKENS)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().double())
    return torch.stack(losses)


def table(names=("llama", "qwen3", "gpt2")):
    """The first and the last loss of swamp, and the relative difference (2-norm) of
    all losses from those of float64, of transformers and of swamp."""
    for name in names:
        exact = training(name, torch.float64)
        for dtype in (torch.float32, torch.bfloat16):
            ours = training(name, dtype, apply)
            yield (name, dtype, float(ours[0]), float(ours[-1]),
                   error(training(name, dtype), exact), error(ours, exact))


class Operators(TorchDispatchMode):
    """The names of the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


class Transformers(TestCase):
    def compare(self, name, dtype, ours=lambda model: model, logits=None,
                **more):
        """The errors of swamp's results against float64 are about those of the
        unmodified model, and the results are equal to a few roundings. Returns the
        names of the operators."""
        exact, stock = (
            run(model_of(name, kind), name, **more) if more else dict(plain_run(name, kind))
            for kind in (torch.float64, dtype))
        if logits is not None:
            more["skip_logits"] = not logits
        model = ours(apply(model_of(name, dtype)))
        with contextlib.ExitStack() as stack:
            operators = Operators()
            if ours.__name__ != "compiled":
                stack.enter_context(operators)
            found = run(model, name, **more)
        if skips_logits(name) and not logits:
            stock.pop("logits", None)
        self.assertEqual(found.keys(), stock.keys())
        few = {torch.float32: 2e-5, torch.bfloat16: 0.05, torch.float16: 0.05}[dtype]
        for key, x in found.items():
            self.assertEqual(x.dtype, torch.float32 if key == "loss" and has_loss(name)
                             else stock[key].dtype, key)
            self.assertLessEqual(
                error(x, exact[key]), 1.6 * error(stock[key], exact[key]) + few / 10,
                (name, dtype, key))
            self.assertLess(error(x, stock[key].double()), few, (name, dtype, key))
        return operators.names

    def test_gradients(self):
        for name in CASES:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                with self.subTest(name=name, dtype=dtype):
                    names = self.compare(name, dtype)
                    self.assertEqual(
                        "swamp._linear_cross_entropy.default" in names,
                        skips_logits(name), names)
                    self.assertEqual(has_loss(name), any(
                        "cross_entropy" in one for one in names))
                    self.assertNotIn("aten.log_softmax.int", names)
                    self.assertNotIn("aten.rsqrt.default", names)
                    if name != "gemma2":
                        self.assertNotIn("aten.tanh.default", names)
                    self.assertEqual("swamp.gated_activation.default" in names, name
                                     not in ("bert", "bert decoder", "gpt2", "t5"))

    def test_modules(self):
        """RMSNorm's order of roundings differs in an element in a thousand at most.
        float64 is computed by transformers."""
        for name, norm in (("llama body", "norm"), ("t5", "encoder.final_layer_norm"),
                           ("gemma", "model.norm"), ("olmo2", "model.norm")):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                x = torch.randn(64, WIDTH).to(dtype)
                stock, ours = (model.get_submodule(norm)(x) for model in (
                    model_of(name, dtype), apply(model_of(name, dtype))))
                if dtype is torch.float32:
                    self.assertLess(error(ours, stock.double()), 1e-6)
                else:
                    self.assertGreaterEqual(
                        float((ours == stock).double().mean()), 0.999, (name, dtype))
        double = apply(model_of("llama body", torch.float64))
        x = torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(double.layers[0].mlp, x))
        for module in (double.norm, double.layers[0].mlp):
            self.assert_same(module(x), type(module).forward(module, x))

    def test_changed(self):
        """What computes something else than swamp is left alone, with one warning."""
        modeling = hf.models.mixtral.modeling_mixtral

        def norm(self, hidden_states):
            return self.weight * hidden_states

        def gate(self, gate_up_out):
            gate, up = gate_up_out.chunk(2, dim=-1)
            return gate * self.act_fn(up)

        def loss(self, input_ids, labels=None, **kwargs):
            logits = self.lm_head(self.model(input_ids).last_hidden_state)
            logits = logits * 2
            loss = None
            return loss, logits, labels, kwargs

        for kind, method, changed in (("MixtralRMSNorm", "forward", norm),
                                      ("MixtralExperts", "_apply_gate", gate),
                                      ("MixtralForCausalLM", "forward", loss)):
            with unittest.mock.patch.object(getattr(modeling, kind), method, changed):
                with self.assertWarnsRegex(UserWarning, f": {kind} of transformers [0-9]"
                                           ) as caught_warnings:
                    model = apply(model_of("mixtral"))
            self.assertEqual(len(caught_warnings.warnings), 1)
            kinds = {type(method.__self__).__name__ for method in replaced_methods(model)}
            self.assertEqual(kinds, {"MixtralRMSNorm", "MixtralExperts",
                                     "MixtralForCausalLM"} - {kind})

    def test_training(self):
        """The losses of 100 steps are as close to those of float64 as without swamp."""
        for name, dtype, first, last, stock, ours in table() if CI else table(["llama"]):
            few = 1e-5 if dtype is torch.float32 else 0.01
            self.assertLess(last, 0.7 * first)
            self.assertLess(ours, 1.5 * stock + few / 20, (name, dtype))
            self.assertLess(ours, few, (name, dtype))

    def test_calls(self):
        ids = inputs_of("llama")["input_ids"]
        few = ids.where(torch.rand(ids.shape) < 0.2, -100)
        rows = {"logits": dict(logits=True),
                "sum": dict(num_items_in_batch=torch.tensor(50)),
                "sum of int": dict(num_items_in_batch=50),
                "sum, logits": dict(num_items_in_batch=50, logits=True),
                "shifted": dict(shift_labels=inputs_of("llama")["labels"]),
                "ignored": dict(labels=ids.index_fill(1, torch.arange(3, 9), 5),
                                ignore_index=5),
                "few labels": dict(labels=few),
                "few labels, logits": dict(labels=few, logits=True),
                "one label": dict(labels=few.where(
                    torch.arange(ids.numel()).view_as(ids) == 77, -100)
                    .index_fill(1, torch.tensor([29]), 3)),
                "mask": dict(attention_mask=torch.ones_like(ids).index_fill(
                    1, torch.arange(5), 0)),
                "tuple": dict(return_dict=False),
                "checkpointing": dict(ours=checkpointed),
                "compile": dict(ours=compiled)}
        # 8 models and 13 rows: a fifth has each of them.
        for name, row in a_fifth(list(itertools.product(
                ("llama", "gemma2", "gemma3", "mixtral", "gpt2", "bert", "bert decoder",
                 "t5"), rows))):
            more = rows[row]
            if name in ("bert", "t5") and set(more) & {
                    "num_items_in_batch", "shift_labels", "ignore_index"}:
                continue
            # Gradients that are nan or cancel out, of transformers too.
            if (name, row) in (("gemma2", "mask"), ("t5", "one label")):
                continue
            with self.subTest(name=name, row=row):
                self.compare(name, torch.bfloat16, **more)

    def test_autocast(self):
        for name in CASES:
            with self.subTest(name=name), torch.autocast("cpu", torch.bfloat16):
                stock, found = (run(wrap(model_of(name)), name)
                                for wrap in (lambda model: model, apply))
                for key, x in found.items():
                    self.assertLess(error(x, stock[key].double()), 0.05, key)

    def test_no_label_counts(self):
        nothing = torch.full((2, TOKENS), -100)
        for name in filter(has_loss, CASES):
            inputs = {**inputs_of(name), "labels": nothing}
            out = apply(model_of(name))(**inputs)
            self.assertTrue(out.loss.isnan(), name)
            self.assertTrue(model_of(name)(**inputs).loss.isnan(), name)

    def test_outputs(self):
        """Without labels and in evaluation there are logits; the other fields are
        those of transformers."""
        for name in filter(has_loss, CASES):
            stock, model = model_of(name), apply(model_of(name))
            inputs = inputs_of(name)
            for training, labels, more in (
                    (True, False, {}), (False, True, {}), (False, False, {}),
                    (True, True, dict(output_hidden_states=True)),
                    (False, True, dict(skip_logits=True))):
                here = {key: x for key, x in inputs.items()
                        if labels or key != "labels"}
                if name.startswith("t5") and not labels:
                    here["decoder_input_ids"] = here["input_ids"]
                theirs = stock.train(training)(
                    **here, **{k: v for k, v in more.items() if k != "skip_logits"})
                ours = model.train(training)(**here, **more)
                self.assertIs(type(ours), type(theirs))
                skipped = (labels and more.get("skip_logits", training)
                           and skips_logits(name))
                self.assertEqual(ours.logits is None, skipped)
                self.assertEqual(set(ours) | {"logits"}, set(theirs), (name, more))
                if not skipped:
                    self.assertLess(error(ours.logits, theirs.logits.double()), 1e-5)
                if labels:
                    self.assertAlmostEqual(ours.loss.item(), theirs.loss.item(), 4)
                    positional = model(here["input_ids"], labels=here["labels"], **more)
                    self.assert_same(positional.loss, ours.loss)
                for a, b in zip(ours.get("hidden_states") or (),
                                theirs.get("hidden_states") or (), strict=True):
                    self.assertLess(error(a, b.double()), 1e-5)

    def test_others_compute(self):
        """Heads and losses that transformers compute, not swamp."""
        class Head(torch.nn.Linear):
            pass

        def other_head(model):
            model.get_output_embeddings().__class__ = Head

        def hook(model):
            model.get_output_embeddings().register_forward_hook(
                lambda module, args, out: out * 2)

        def loss(model):
            model.loss_function = lambda logits, labels, **_: logits.square().mean()

        for name in ("llama", "gpt2", "bert"):
            for change in (other_head, hook, loss, torch.nn.Module.double):
                if (name, change) == ("bert", loss):
                    continue
                stock, model = model_of(name), apply(model_of(name))
                change(stock)
                change(model)
                theirs, ours = (one(**inputs_of(name)) for one in (stock, model))
                self.assertIsNotNone(ours.logits, (name, change))
                self.assertLess(error(ours.loss, theirs.loss.double()), 1e-5)

    def test_generation(self):
        prompt = torch.arange(3, 9).repeat(2, 1)
        for name in CASES:
            if not hasattr(CASES[name][0], "generate") or name == "bert":
                continue
            stock, ours = (
                model.eval().generate(prompt, max_new_tokens=8, do_sample=False)
                for model in (model_of(name), apply(model_of(name))))
            self.assertTrue(torch.equal(stock, ours), name)

    def test_what_stays(self):
        for name, (kind, _, replaced) in CASES.items():
            stock, model = model_of(name), model_of(name)
            self.assertIs(apply(model), model)
            methods = replaced_methods(model)
            self.assertEqual(len(methods), replaced, name)
            self.assertIs(apply(model), model)
            self.assertEqual(methods, replaced_methods(model))
            self.assertIs(type(model), kind)
            self.assertEqual(replaced_methods(stock), [])
            self.assertEqual(str(model), str(stock))
            self.assertEqual(inspect.signature(model.forward),
                             inspect.signature(stock.forward))
            self.assertEqual(list(model.state_dict()), list(stock.state_dict()))
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                saved = kind.from_pretrained(folder).train()
            self.assertEqual(saved.config.architectures, [kind.__name__])
            self.assertNotIn("forward", vars(saved))
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=False)
            other = copy.deepcopy(model)
            for one in (saved, loaded, other):
                self.assert_same([*one.parameters()], [*model.parameters()])
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()  # a copy does not compute with these
            found, exact = run(other, name), run(stock, name)
            for results in (found, run(loaded, name)):
                self.assertLess(error(results["loss"], exact["loss"].double()), 1e-5)
            self.assertEqual("logits" in found, name in ("llama classes", "gemma2"))

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "no accelerate")
    def test_trainer(self):
        """Labels that are accumulated, evaluation, and columns that are removed."""
        ids = inputs_of("llama")["input_ids"]
        rows = [dict(input_ids=row, labels=row, unknown=row)
                for row in ids.repeat(4, 1)]

        def losses(model):
            with tempfile.TemporaryDirectory() as folder:
                trainer = hf.Trainer(model, hf.TrainingArguments(
                    folder, max_steps=3, per_device_train_batch_size=1,
                    gradient_accumulation_steps=2, logging_steps=1, report_to=[],
                    use_cpu=True, disable_tqdm=True, eval_strategy="steps",
                    eval_steps=3, save_strategy="no"),
                    train_dataset=rows, eval_dataset=rows)
                with contextlib.redirect_stdout(io.StringIO()):
                    trainer.train()
                return torch.tensor([entry.get("loss", entry.get("eval_loss")) for entry
                                     in trainer.state.log_history[:4]])
        stock, ours = losses(model_of("llama")), losses(apply(model_of("llama")))
        self.assertLess(error(ours, stock.double()), 1e-4)

    def test_errors(self):
        albert = hf.AlbertModel(hf.AlbertConfig(
            vocab_size=20, embedding_size=8, hidden_size=8, num_attention_heads=2,
            intermediate_size=8, num_hidden_layers=1))
        for model in (albert, torch.nn.Linear(2, 2), torch.nn.DataParallel(
                model_of("llama"))):
            self.assertEqual(caught(lambda: apply(model)), (
                "TypeError", f"model: got {type(model).__name__}, expected a model of "
                "transformers of one of the types llama, mistral, qwen2, qwen3, gemma, "
                "gemma2, gemma3, phi3, olmo2, mixtral, qwen2_moe, qwen3_moe, gpt2, bert, "
                "t5"))
        wrong = inputs_of("llama")
        wrong["labels"][1, 3] = VOCABULARY
        self.assertEqual(caught(lambda: apply(model_of("llama"))(**wrong))[0],
                         "IndexError")


def checkpointed(model):
    model.gradient_checkpointing_enable()
    return model


def compiled(model):
    torch._dynamo.reset()  # each class would count as a recompilation
    # Otherwise transformers warn that they use the default loss, or take a lock.
    whole = model.loss_type is not None and not hasattr(model, "num_experts")
    model.compile(backend="aot_eager", fullgraph=whole)
    return model


if __name__ == "__main__":
    main()
