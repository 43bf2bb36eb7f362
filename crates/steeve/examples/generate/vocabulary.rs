//! Text to tokens and back, where the vocabulary is of byte pairs.

use shimmytok::Tokenizer;
use steeve_models::gguf::{GgufHeader, GgufValue};

use crate::Failure;
use crate::options::Options;

/// A vocabulary: tokens are texts where there is a prompt of text, and numbers else.
pub(crate) struct Vocabulary {
    tokenizer: Option<Tokenizer>,
    /// What llama.cpp puts before a text, and the tokenizer does not.
    begin: Option<i32>,
}

/// The ways to cut a text into words before pairs are looked for in which the tokenizer does as llama.cpp.
const CUTS: [&str; 14] = [
    "default",
    "gpt-2",
    "llama3",
    "llama-v3",
    "llama-bpe",
    "smollm",
    "qwen2",
    "deepseek-r1-qwen",
    "deepseek-llm",
    "deepseek-coder",
    "starcoder",
    "refact",
    "command-r",
    "falcon",
];

/// Those of them in which a text begins with a token of its own, if the file does not say otherwise.
const WITH_BEGIN: [&str; 3] = ["llama3", "llama-v3", "llama-bpe"];

impl Vocabulary {
    pub(crate) fn new(options: &Options, header: &GgufHeader) -> Result<Self, Failure> {
        if options.prompt.is_none() {
            return Ok(Self { tokenizer: None, begin: None });
        }
        let value = |key| header.value(key).and_then(GgufValue::as_text);
        // Of other vocabularies the tokenizer makes other tokens than llama.cpp.
        let kind = value("tokenizer.ggml.model").unwrap_or("none");
        if kind != "gpt2" {
            return Err(format!("-p: the vocabulary is not of byte pairs (gpt2) but {kind:?}: use --tokens").into());
        }
        let cut = value("tokenizer.ggml.pre").unwrap_or("default");
        if !CUTS.contains(&cut) {
            return Err(format!("-p: text is cut as {cut:?}, expected one of {}: use --tokens", CUTS.join(", ")).into());
        }
        let is_silent = header.value("tokenizer.ggml.add_bos_token").is_none();
        let begin = token(header, "tokenizer.ggml.bos_token_id").filter(|_| is_silent && WITH_BEGIN.contains(&cut));
        Ok(Self { tokenizer: Some(Tokenizer::from_gguf_file(&options.model)?), begin })
    }

    /// Returns the tokens of the prompt.
    pub(crate) fn prompt(&self, options: &Options) -> Result<Vec<i32>, Failure> {
        let (Some(tokenizer), Some(text)) = (&self.tokenizer, &options.prompt) else {
            return Ok(options.tokens.clone());
        };
        let tokens = tokenizer.encode(text, true)?.into_iter().map(i32::try_from);
        self.begin.into_iter().map(Ok).chain(tokens).collect::<Result<_, _>>().map_err(Failure::from)
    }

    /// Returns what is printed of tokens.
    pub(crate) fn text(&self, tokens: &[i32]) -> Result<String, Failure> {
        match &self.tokenizer {
            None => Ok(tokens.iter().map(|token| format!("{token} ")).collect()),
            Some(tokenizer) => {
                let tokens = tokens.iter().map(|token| u32::try_from(*token)).collect::<Result<Vec<_>, _>>()?;
                Ok(tokenizer.decode(&tokens, false)?)
            }
        }
    }
}

/// Texts of tokens that end what is said, whatever else a file says of its end.
const ENDS: [&str; 12] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<EOT>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// Returns the tokens that end a text: those that the file names, and those whose texts are known to.
pub(crate) fn end_tokens(header: &GgufHeader) -> Vec<i32> {
    let keys = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    let mut ends: Vec<i32> = keys.into_iter().filter_map(|key| token(header, key)).collect();
    if let Some(GgufValue::Texts(texts)) = header.value("tokenizer.ggml.tokens") {
        let is_end =
            |index: &usize| texts.get(*index).is_some_and(|text| ENDS.iter().any(|end| end.as_bytes() == text));
        ends.extend((0..texts.len()).filter(is_end).filter_map(|index| i32::try_from(index).ok()));
    }
    ends
}

/// Returns the token that a value names.
fn token(header: &GgufHeader, key: &str) -> Option<i32> {
    header.value(key)?.as_u64().and_then(|token| i32::try_from(token).ok())
}
