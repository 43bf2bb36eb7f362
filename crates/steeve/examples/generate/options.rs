//! What is asked for on the command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use steeve::prelude::Bytes;

use crate::Failure;

/// Generates text with a language model from a GGUF file.
///
/// Weights are computed with where they are in the mapped file, or copied to a GPU once.
#[derive(Debug, Parser)]
#[command(name = "generate")]
pub(crate) struct Options {
    /// The model: llama, qwen2, qwen3, qwen3moe or gemma3.
    pub(crate) model: PathBuf,

    /// The text to go on with, for models with a byte-pair vocabulary.
    #[arg(short, long, required_unless_present = "tokens", conflicts_with = "tokens")]
    pub(crate) prompt: Option<String>,

    /// The text to go on with as numbers of tokens, for all others; numbers are printed then.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub(crate) tokens: Vec<i32>,

    /// How many tokens to generate.
    #[arg(short = 'n', long, default_value_t = 32)]
    pub(crate) count: u64,

    /// The longest text, in tokens [default: 4096, or what the model was trained with, if that is less].
    #[arg(long)]
    pub(crate) context: Option<u64>,

    /// The tokens of the prompt that are computed at a time.
    #[arg(long, default_value_t = 512)]
    pub(crate) batch: u64,

    /// Threads of the processor [default: one for each core].
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// cpu, cuda:0, cuda:1 and so on.
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,

    /// How many of the last layers are on the GPU [default: all].
    #[arg(long)]
    pub(crate) layers_on_gpu: Option<u64>,

    /// The most bytes that may be taken of the device, such as 512MiB or 8G; more is an error before anything is loaded.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) capacity: Option<Bytes>,

    /// How freely to choose: 0 takes the likeliest token, 1 each one as often as the model says.
    #[arg(long, default_value_t = 0.0, value_parser = parse_temperature, allow_negative_numbers = true)]
    pub(crate) temperature: f32,

    /// The start of the random numbers: the same seed chooses the same tokens.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Tokens to go on with whatever the model would choose, to see how likely it finds them.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub(crate) answer: Vec<i32>,

    /// Computes the text once before, untimed, so that the figures are those of a program that has been running.
    #[arg(long)]
    pub(crate) warm_up: bool,

    /// Goes on after a token that ends the text.
    #[arg(long)]
    pub(crate) ignore_end: bool,

    /// Prints a line of JSON for each token, with the likeliest five and the logarithms of their probabilities, and one at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// Returns the number of the GPU, if one is asked for.
    pub(crate) fn gpu(&self) -> Result<Option<usize>, Failure> {
        if self.device == "cpu" {
            return match self.layers_on_gpu {
                Some(layers) if layers > 0 => Err("--layers-on-gpu needs a --device cuda:0".into()),
                _ => Ok(None),
            };
        }
        // As `steeve devices` calls them, or as other programs do.
        let number = self.device.strip_prefix("cuda:").or_else(|| self.device.strip_prefix("CUDA"));
        let number = number.and_then(|number| number.parse().ok());
        number
            .map(Some)
            .ok_or_else(|| format!("--device {}: expected cpu, cuda:0, cuda:1 and so on", self.device).into())
    }
}

/// Reads a temperature, which is a number from 0 on.
fn parse_temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number from 0 on".to_owned())
}

/// Reads a number of bytes with or without a unit, of which each is 1024 times the one before.
fn parse_size(text: &str) -> Result<Bytes, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == unit);
    let bytes = power.zip(number.parse::<u64>().ok()).and_then(|(power, number)| number.checked_mul(1 << (10 * power)));
    bytes.map(Bytes).ok_or_else(|| "expected a whole number of bytes, K, M, G or T, such as 512M or 8GiB".to_owned())
}
