"""Makes a tiny random language model of each family as a GGUF file, for proofs/words.py --small.

    python3 proofs/tiny_models.py FOLDER [SEED]

Families without a model in a package are compared with llama.cpp on these: every part of a family is in them (biases, norms, grouped
queries, windows that are shorter than the texts, experts, tied and own output weights, stretched positions), with weights of 32 bits, so
that both programs must agree to the rounding of their caches. Only the first tokens of the vocabulary are likely: those
that are ASCII letters.

Needs the packages gguf and numpy. Prints the files.
"""

import sys
from pathlib import Path

import gguf
import numpy

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, EXPERTS, USED = 64, 4, 2, 32, 96, 6, 3
ASCII = [chr(code) for code in range(33, 127)]


class Model:
    """A file with random weights."""

    def __init__(self, path: Path, family: str, seed: int, layers: int) -> None:
        self.random = numpy.random.default_rng(seed)
        self.family, self.layers = family, layers
        # llama.cpp takes qwen2 only if the heads of the queries fill the width.
        self.head = WIDTH // HEADS if family == "qwen2" else HEAD
        self.writer = gguf.GGUFWriter(path, family)
        self.values()
        self.vocabulary()

    def values(self) -> None:
        writer = self.writer
        writer.add_context_length(2048)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(HIDDEN)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        writer.add_layer_norm_rms_eps(1e-6)

    def vocabulary(self) -> None:
        """Byte pairs without pairs: a token for each byte."""
        writer = self.writer
        # The letters that stand for the bytes that can't be printed.
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [chr(256 + index) for index in range(256 - len(printable))]
        tokens = ASCII + [chr(code) for code in printable if code > 126] + others + ["<end>"]
        self.tokens = len(tokens)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([gguf.TokenType.NORMAL] * (len(tokens) - 1) + [gguf.TokenType.CONTROL])
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(len(tokens) - 1)
        writer.add_bos_token_id(len(tokens) - 1)
        writer.add_add_bos_token(False)
        writer.add_uint32("proof.tokens", len(ASCII))

    def add(self, name: str, *shape: int, scale: float = 1.0, middle: float = 0.0) -> None:
        """A weight; shapes as numpy has them, the rows last."""
        deviation = scale / numpy.sqrt(shape[-1])
        data = middle + deviation * self.random.standard_normal(shape)
        self.writer.add_tensor(name, data.astype(numpy.float32))

    def norm(self, name: str, length: int, middle: float = 1) -> None:
        self.writer.add_tensor(name, (middle + 0.2 * self.random.standard_normal(length)).astype(numpy.float32))

    def rows_of_tokens(self, name: str, scale: float) -> None:
        """Rows for all tokens, of which those that are no ASCII letters are zero, so that they are never chosen."""
        data = scale * self.random.standard_normal((self.tokens, WIDTH))
        data[len(ASCII) :] = 0
        self.writer.add_tensor(name, data.astype(numpy.float32))

    def layer(self, number: int) -> None:
        name = f"blk.{number}."
        self.norm(name + "attn_norm.weight", WIDTH)
        for projection, to in (("attn_q", HEADS * self.head), ("attn_k", KV_HEADS * self.head), ("attn_v", KV_HEADS * self.head)):
            self.add(f"{name}{projection}.weight", to, WIDTH, scale=1.5)
            if self.family == "qwen2":
                self.writer.add_tensor(f"{name}{projection}.bias", self.random.standard_normal(to).astype(numpy.float32))
        if self.family in ("qwen3", "qwen3moe", "gemma3"):
            self.norm(name + "attn_q_norm.weight", self.head)
            self.norm(name + "attn_k_norm.weight", self.head)
        self.add(name + "attn_output.weight", WIDTH, HEADS * self.head)
        if self.family == "gemma3":
            self.norm(name + "post_attention_norm.weight", WIDTH)
            self.norm(name + "post_ffw_norm.weight", WIDTH)
        self.norm(name + "ffn_norm.weight", WIDTH)
        if self.family == "qwen3moe":
            self.add(name + "ffn_gate_inp.weight", EXPERTS, WIDTH, scale=2.0)
            self.add(name + "ffn_gate_exps.weight", EXPERTS, HIDDEN, WIDTH)
            self.add(name + "ffn_up_exps.weight", EXPERTS, HIDDEN, WIDTH)
            self.add(name + "ffn_down_exps.weight", EXPERTS, WIDTH, HIDDEN)
        else:
            self.add(name + "ffn_gate.weight", HIDDEN, WIDTH)
            self.add(name + "ffn_up.weight", HIDDEN, WIDTH)
            self.add(name + "ffn_down.weight", WIDTH, HIDDEN)

    def finish(self, own_output: bool) -> None:
        # Where output weights are those of the input, a token would always be followed by itself if its row were not small.
        self.rows_of_tokens("token_embd.weight", 1.0 if own_output else 0.05)
        for number in range(self.layers):
            self.layer(number)
        self.norm("output_norm.weight", WIDTH, 1 if own_output else 10)
        if own_output:
            self.rows_of_tokens("output.weight", 0.5)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder.mkdir(parents=True, exist_ok=True)

    def make(name: str, family: str, layers: int = 3, own_output: bool = True) -> Model:
        model = Model(folder / f"{name}.gguf", family, seed, layers)
        made.append((folder / f"{name}.gguf", model, own_output))
        return model

    made: list[tuple[Path, Model, bool]] = []
    make("llama", "llama")
    # Llama 3.1 stretches slow rotations by factors in a tensor.
    stretched = make("llama-factors", "llama", own_output=False)
    factors = numpy.linspace(1, 8, HEAD // 2).astype(numpy.float32)
    stretched.writer.add_tensor("rope_freqs.weight", factors)
    stretched.writer.add_rope_freq_base(500000.0)
    make("qwen2", "qwen2", own_output=False)
    make("qwen3", "qwen3")
    yarn = make("qwen3-yarn", "qwen3")
    yarn.writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    yarn.writer.add_rope_scaling_factor(4.0)
    yarn.writer.add_rope_scaling_orig_ctx_len(512)
    experts = make("qwen3moe", "qwen3moe")
    experts.writer.add_expert_count(EXPERTS)
    experts.writer.add_expert_used_count(USED)
    experts.writer.add_expert_feed_forward_length(HIDDEN)
    for name, window, factor in (("gemma3", 24, None), ("gemma3-stretched", 200, 8.0)):
        gemma = make(name, "gemma3", layers=8, own_output=False)
        gemma.writer.add_sliding_window(window)
        gemma.writer.add_rope_freq_base(1e6)
        if factor:
            gemma.writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            gemma.writer.add_rope_scaling_factor(factor)
    for path, model, own_output in made:
        model.finish(own_output)
        print(path)


if __name__ == "__main__":
    main()
