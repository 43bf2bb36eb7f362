//! Makes small GGUF files in memory, for examples and tests.

use steeve_graph::DataType;

use super::model_config::Architecture;
use super::value::{ARRAY, TEXT, ValueKind};

/// A GGUF file that is made in memory. See [`GgufHeader`](super::GgufHeader) for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallGguf {
    values: Vec<(String, Vec<u8>)>,
    tensors: Vec<SmallTensor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SmallTensor {
    name: String,
    dtype: DataType,
    shape: Vec<u64>,
    data: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// The alignment of the data, which is the usual one.
const ALIGN: usize = 32;

impl SmallGguf {
    /// Creates a file without values and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value of any type: its number in files, and its bytes.
    pub fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.values.push((key.to_owned(), [&kind.to_le_bytes(), bytes].concat()));
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.value(key, TEXT, &text(value));
    }

    /// Adds a number.
    pub fn number(&mut self, key: &str, number: u32) {
        self.value(key, ValueKind::U32.number(), &number.to_le_bytes());
    }

    /// Adds a fraction.
    pub fn float(&mut self, key: &str, number: f32) {
        self.value(key, ValueKind::F32.number(), &number.to_le_bytes());
    }

    /// Adds an array of texts.
    pub fn texts(&mut self, key: &str, texts: &[&str]) {
        let items: Vec<u8> = texts.iter().flat_map(|item| text(item)).collect();
        self.value(key, ARRAY, &[&TEXT.to_le_bytes(), &(texts.len() as u64).to_le_bytes()[..], &items].concat());
    }

    /// Adds an array of numbers.
    pub fn numbers(&mut self, key: &str, numbers: &[u32]) {
        let items: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let kind = ValueKind::U32.number().to_le_bytes();
        self.value(key, ARRAY, &[&kind, &(numbers.len() as u64).to_le_bytes()[..], &items].concat());
    }

    /// Adds a tensor with these data.
    pub fn tensor(&mut self, name: &str, dtype: DataType, shape: &[u64], data: &[u8]) {
        let tensor = SmallTensor { name: name.to_owned(), dtype, shape: shape.to_vec(), data: data.to_vec() };
        self.tensors.push(tensor);
    }

    /// Removes the value of a key, if there is one.
    pub fn remove_value(&mut self, key: &str) {
        self.values.retain(|(other, _)| other != key);
    }

    /// Removes a tensor, if there is one.
    pub fn remove_tensor(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name);
    }

    /// Returns the header, without the padding and the data behind it.
    pub fn header_bytes(&self) -> Vec<u8> {
        let counts = [self.tensors.len() as u64, self.values.len() as u64].map(u64::to_le_bytes);
        let mut bytes = [b"GGUF".as_slice(), &3u32.to_le_bytes(), counts.as_flattened()].concat();
        for (key, value) in &self.values {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        let mut offset = 0;
        for SmallTensor { name, dtype, shape, data } in &self.tensors {
            bytes.extend(text(name));
            bytes.extend((shape.len() as u32).to_le_bytes());
            bytes.extend(shape.iter().flat_map(|extent| extent.to_le_bytes()));
            bytes.extend(dtype.ggml_id().to_le_bytes());
            bytes.extend((offset as u64).to_le_bytes());
            offset += data.len().next_multiple_of(ALIGN);
        }
        bytes
    }

    /// Returns the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header_bytes();
        for tensor in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
            bytes.extend(&tensor.data);
        }
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes
    }

    /// Returns a language model with two layers and 16 tokens, or seven layers where some see the last 24 tokens only. Its weights
    /// are random.
    pub fn language_model(architecture: Architecture, seed: u64) -> Self {
        let mut builder = RandomModel { file: Self::new(), state: seed };
        builder.values(architecture);
        builder.weights(architecture);
        builder.file
    }
}

/// The sizes of a random model.
const WIDTH: u64 = 32;
const HEAD: u64 = 16;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HIDDEN: u64 = 64;
const EXPERTS: u64 = 4;
const VOCABULARY: u64 = 16;

struct RandomModel {
    file: SmallGguf,
    state: u64,
}

impl RandomModel {
    fn layers(architecture: Architecture) -> u64 {
        if architecture == Architecture::Gemma3 { 7 } else { 2 }
    }

    fn values(&mut self, architecture: Architecture) {
        let (file, name) = (&mut self.file, architecture.name());
        file.text("general.architecture", name);
        let numbers = [
            ("context_length", 512),
            ("embedding_length", WIDTH),
            ("block_count", Self::layers(architecture)),
            ("feed_forward_length", HIDDEN),
            ("attention.head_count", HEADS),
            ("attention.head_count_kv", KV_HEADS),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
        ];
        for (key, number) in numbers {
            file.number(&format!("{name}.{key}"), number as u32);
        }
        file.float(&format!("{name}.attention.layer_norm_rms_epsilon"), 1e-6);
        if architecture == Architecture::Gemma3 {
            file.number("gemma3.attention.sliding_window", 24);
        }
        if architecture == Architecture::Qwen3Moe {
            file.number("qwen3moe.expert_count", EXPERTS as u32);
            file.number("qwen3moe.expert_used_count", 2);
            file.number("qwen3moe.expert_feed_forward_length", HIDDEN as u32);
        }
    }

    fn weights(&mut self, architecture: Architecture) {
        use Architecture::{Gemma3, Qwen2, Qwen3, Qwen3Moe};
        self.weight("token_embd.weight", &[WIDTH, VOCABULARY]);
        for layer in 0..Self::layers(architecture) {
            let name = |name: &str| format!("blk.{layer}.{name}.weight");
            self.weight(&name("attn_norm"), &[WIDTH]);
            let projections = [("attn_q", HEADS * HEAD), ("attn_k", KV_HEADS * HEAD), ("attn_v", KV_HEADS * HEAD)];
            for (projection, to) in projections {
                self.weight(&name(projection), &[WIDTH, to]);
                if architecture == Qwen2 {
                    self.weight(&format!("blk.{layer}.{projection}.bias"), &[to]);
                }
            }
            if matches!(architecture, Qwen3 | Qwen3Moe | Gemma3) {
                self.weight(&name("attn_q_norm"), &[HEAD]);
                self.weight(&name("attn_k_norm"), &[HEAD]);
            }
            self.weight(&name("attn_output"), &[HEADS * HEAD, WIDTH]);
            if architecture == Gemma3 {
                self.weight(&name("post_attention_norm"), &[WIDTH]);
                self.weight(&name("post_ffw_norm"), &[WIDTH]);
            }
            self.weight(&name("ffn_norm"), &[WIDTH]);
            if architecture == Qwen3Moe {
                self.weight(&name("ffn_gate_inp"), &[WIDTH, EXPERTS]);
                self.weight(&name("ffn_gate_exps"), &[WIDTH, HIDDEN, EXPERTS]);
                self.weight(&name("ffn_up_exps"), &[WIDTH, HIDDEN, EXPERTS]);
                self.weight(&name("ffn_down_exps"), &[HIDDEN, WIDTH, EXPERTS]);
            } else {
                self.weight(&name("ffn_gate"), &[WIDTH, HIDDEN]);
                self.weight(&name("ffn_up"), &[WIDTH, HIDDEN]);
                self.weight(&name("ffn_down"), &[HIDDEN, WIDTH]);
            }
        }
        self.weight("output_norm.weight", &[WIDTH]);
    }

    /// Adds a weight: near one for a vector, else near zero.
    fn weight(&mut self, name: &str, shape: &[u64]) {
        let middle = if shape.len() == 1 && !name.ends_with(".bias") { 1.0 } else { 0.0 };
        let count = shape.iter().product::<u64>();
        let data: Vec<u8> = (0..count).flat_map(|_| (middle + self.random()).to_le_bytes()).collect();
        self.file.tensor(name, DataType::F32, shape, &data);
    }

    /// Returns a number between -0.5 and 0.5.
    fn random(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 40) as f32 / (1 << 24) as f32 - 0.5
    }
}
