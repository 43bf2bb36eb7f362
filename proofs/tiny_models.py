"""Makes a tiny random language model of each family as a GGUF file, for proofs/words.py --small.

    python3 proofs/tiny_models.py FOLDER [SEED]

Families without a model in a package are compared with llama.cpp on these: every part of a family is in them (biases, norms, grouped
queries, windows that are shorter than the texts, experts, tied and own output weights, stretched positions), with weights of 32 bits, so
that both programs must agree to the rounding of their caches. Only the first tokens of the vocabulary are likely: those
that are ASCII letters. Models named TYPE-FAMILY have weights of other types, for proofs/words.py --small --exact.

Needs the packages gguf and numpy. Prints the files.
"""

import sys
from pathlib import Path

import gguf
import numpy

HEADS, KV_HEADS, EXPERTS, USED = 4, 2, 6, 3
Type = gguf.GGMLQuantizationType
# Types of weights: those that the package can round to, and those that are made of random bytes: the places of their scale and of the
# scale of what is subtracted, and how many times the first one the second is so that weights are zero on average.
ROUNDED = [Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]
MADE = {
    Type.Q2_K: (80, 82, 1.5),
    Type.Q3_K: (108, None, 0),
    Type.Q4_K: (0, 2, 7.5),
    Type.Q5_K: (0, 2, 15.5),
    Type.Q6_K: (208, None, 0),
}
ASCII = [chr(code) for code in range(33, 127)]


class Model:
    """A file with random weights."""

    def __init__(self, path: Path, family: str, seed: int, layers: int, kv_heads: int = KV_HEADS, head: int = 32, type_: Type = Type.F32) -> None:
        self.random = numpy.random.default_rng(seed)
        self.family, self.layers, self.kv_heads, self.type = family, layers, kv_heads, type_
        # Rows of the types of 256 have as many elements.
        self.width, self.hidden = (256, 256) if type_ in MADE else (64, 96)
        # llama.cpp takes qwen2 only if the heads of the queries fill the width.
        self.head = self.width // HEADS if family == "qwen2" or type_ in MADE else head
        self.experts = EXPERTS if family == "qwen3moe" else 0
        self.writer = gguf.GGUFWriter(path, family)
        self.values()
        self.vocabulary()

    def values(self) -> None:
        writer = self.writer
        writer.add_context_length(2048)
        writer.add_embedding_length(self.width)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.hidden)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(self.kv_heads)
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
        if self.type in MADE:
            self.made(name, shape, deviation)
        else:
            self.rounded(name, middle + deviation * self.random.standard_normal(shape))

    def rounded(self, name: str, data: numpy.ndarray) -> None:
        """A weight of the type of the model, which is one that the package can round to."""
        data = data.astype(numpy.float32)
        if self.type == Type.F32:
            self.writer.add_tensor(name, data)
        else:
            self.writer.add_tensor(name, gguf.quants.quantize(data, self.type), raw_dtype=self.type)

    def made(self, name: str, shape: tuple[int, ...], deviation: float, likely: int | None = None) -> None:
        """A weight of random bytes with this deviation; rows from `likely` on are zero."""
        scale, taken, times = MADE[self.type]
        elements, size = gguf.GGML_QUANT_SIZES[self.type]
        blocks = self.random.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), numpy.uint8)

        def put(factor: float) -> None:
            blocks[..., scale : scale + 2] = numpy.frombuffer(numpy.float16(factor).tobytes(), numpy.uint8)
            if taken is not None:
                blocks[..., taken : taken + 2] = numpy.frombuffer(numpy.float16(times * factor).tobytes(), numpy.uint8)

        def rows() -> numpy.ndarray:
            return blocks.reshape(*shape[:-1], -1)

        put(0.001)
        put(0.001 * deviation / float(gguf.quants.dequantize(rows(), self.type).std()))
        if likely is not None:
            blocks[likely:] = 0
        self.writer.add_tensor(name, rows(), raw_dtype=self.type)

    def norm(self, name: str, length: int, middle: float = 1) -> None:
        self.writer.add_tensor(name, (middle + 0.2 * self.random.standard_normal(length)).astype(numpy.float32))

    def rows_of_tokens(self, name: str, scale: float) -> None:
        """Rows for all tokens, of which those that are no ASCII letters are zero, so that they are never chosen."""
        shape = (self.tokens, self.width)
        if self.type in MADE:
            self.made(name, shape, scale, len(ASCII))
            return
        data = scale * self.random.standard_normal(shape)
        data[len(ASCII) :] = 0
        self.rounded(name, data)

    def bias(self, name: str, length: int) -> None:
        self.writer.add_tensor(f"{name}.bias", self.random.standard_normal(length).astype(numpy.float32))

    def layer(self, number: int, biases: tuple[str, ...]) -> None:
        name, width, hidden = f"blk.{number}.", self.width, self.hidden
        queries, keys = HEADS * self.head, self.kv_heads * self.head
        self.norm(name + "attn_norm.weight", width)
        for projection, to in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
            self.add(f"{name}{projection}.weight", to, width, scale=1.5)
            if self.family == "qwen2":
                self.bias(name + projection, to)
        if self.family in ("qwen3", "qwen3moe", "gemma3"):
            self.norm(name + "attn_q_norm.weight", self.head)
            self.norm(name + "attn_k_norm.weight", self.head)
        self.add(name + "attn_output.weight", width, queries)
        if self.family == "gemma3":
            self.norm(name + "post_attention_norm.weight", width)
            self.norm(name + "post_ffw_norm.weight", width)
        self.norm(name + "ffn_norm.weight", width)
        if self.experts:
            self.add(name + "ffn_gate_inp.weight", EXPERTS, width, scale=2.0)
            self.add(name + "ffn_gate_exps.weight", EXPERTS, hidden, width)
            self.add(name + "ffn_up_exps.weight", EXPERTS, hidden, width)
            self.add(name + "ffn_down_exps.weight", EXPERTS, width, hidden)
        else:
            self.add(name + "ffn_gate.weight", hidden, width)
            self.add(name + "ffn_up.weight", hidden, width)
            self.add(name + "ffn_down.weight", width, hidden)
        for projection in biases:
            to = {"attn_q": queries, "attn_k": keys, "attn_v": keys, "ffn_gate": hidden, "ffn_up": hidden}.get(projection, width)
            self.bias(name + projection, to)

    def with_experts(self) -> None:
        self.experts = EXPERTS
        self.writer.add_expert_count(EXPERTS)
        self.writer.add_expert_used_count(USED)

    def finish(self, own_output: bool, biases: tuple[str, ...]) -> None:
        # Where output weights are those of the input, a token would always be followed by itself if its row were not small.
        self.rows_of_tokens("token_embd.weight", 1.0 if own_output else 0.05)
        for number in range(self.layers):
            self.layer(number, tuple(bias for bias in biases if bias != "output"))
        self.norm("output_norm.weight", self.width, 1 if own_output else 10)
        if own_output:
            self.rows_of_tokens("output.weight", 0.5)
        if "output" in biases:
            self.writer.add_tensor("output.bias", (numpy.arange(self.tokens) < len(ASCII)).astype(numpy.float32))
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder.mkdir(parents=True, exist_ok=True)

    made: list[tuple[Path, Model, bool, tuple[str, ...]]] = []

    def make(name: str, family: str, layers: int = 3, own_output: bool = True, biases: tuple[str, ...] = (), **sizes: object) -> Model:
        model = Model(folder / f"{name}.gguf", family, seed, layers, **sizes)
        made.append((folder / f"{name}.gguf", model, own_output, biases))
        return model

    def stretched(model: Model, kind: gguf.RopeScalingType, factor: float) -> None:
        model.writer.add_rope_scaling_type(kind)
        model.writer.add_rope_scaling_factor(factor)

    make("llama", "llama")
    # Llama 3.1 stretches slow rotations by factors in a tensor.
    factors = make("llama-factors", "llama", own_output=False)
    factors.writer.add_tensor("rope_freqs.weight", numpy.linspace(1, 8, factors.head // 2).astype(numpy.float32))
    factors.writer.add_rope_freq_base(500000.0)
    make("llama-biases", "llama", biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"))
    stretched(make("llama-one-key", "llama", kv_heads=1, head=24), gguf.RopeScalingType.LINEAR, 2.5)
    stretched(make("llama-none", "llama", kv_heads=4), gguf.RopeScalingType.NONE, 2.5)
    make("llama-experts", "llama").with_experts()
    make("qwen2", "qwen2", own_output=False)
    make("qwen2-output", "qwen2", biases=("output",))
    make("qwen3", "qwen3", head=48, kv_heads=4)
    yarn = make("qwen3-yarn", "qwen3")
    stretched(yarn, gguf.RopeScalingType.YARN, 4.0)
    yarn.writer.add_rope_scaling_orig_ctx_len(512)
    yarn = make("llama-yarn", "llama", own_output=False)
    stretched(yarn, gguf.RopeScalingType.YARN, 8.0)
    yarn.writer.add_float32("llama.rope.scaling.attn_factor", 0.75)
    experts = make("qwen3moe", "qwen3moe", head=16)
    experts.with_experts()
    experts.writer.add_expert_feed_forward_length(experts.hidden)
    for name, window, factor in (("gemma3", 24, None), ("gemma3-stretched", 200, 8.0), ("gemma3-wide", 2000, None), ("gemma3-all", 0, None)):
        gemma = make(name, "gemma3", layers=8, own_output=False)
        if window:
            gemma.writer.add_sliding_window(window)
        if name == "gemma3-all":
            gemma.writer.add_final_logit_softcapping(8.0)
        else:
            gemma.writer.add_rope_freq_base(1e6)
        if factor:
            stretched(gemma, gguf.RopeScalingType.LINEAR, factor)
        if name == "gemma3-wide":
            gemma.writer.add_sliding_window_pattern(2)
            gemma.writer.add_float32("gemma3.rope.freq_base_swa", 3e3)
    for type_ in [*ROUNDED, *MADE]:
        make(f"{type_.name}-llama", "llama", type_=type_)
    moe = make("Q4_K-qwen3moe", "qwen3moe", type_=Type.Q4_K)
    moe.with_experts()
    moe.writer.add_expert_feed_forward_length(moe.hidden)
    moe = make("Q8_0-qwen3moe", "qwen3moe", type_=Type.Q8_0)
    moe.with_experts()
    moe.writer.add_expert_feed_forward_length(moe.hidden)
    for path, model, own_output, biases in made:
        model.finish(own_output, biases)
        print(path)


if __name__ == "__main__":
    main()
