//! Text from a language model in a GGUF file: weights where they are in the mapped file, caches and compute memory planned, one
//! graph for many tokens.
//!
//!     cargo run --release -p steeve --example generate -- model.gguf -p "The capital of France is" -n 32
//!     cargo run --release -p steeve --example generate -- model.gguf --tokens 2,818,5279 --temperature 0.8 --seed 7
//!     cargo run --release -p steeve --features cuda --example generate -- model.gguf -p "Hello" --device cuda:0 --layers-on-gpu 20

mod options;
mod model_file;
mod session;
mod sampler;

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use shimmytok::Tokenizer;
use steeve::prelude::*;
use steeve_models::gguf::{GgufHeader, SessionSize};

use crate::model_file::{Devices, ModelFile};
use crate::options::Options;
use crate::sampler::{Sampler, likeliest};
use crate::session::Session;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("error: {error}");
            let mut cause = error.source();
            while let Some(source) = cause {
                eprint!(": {source}");
                cause = source.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let file = ModelFile::open(&options.model)?;
    let size = SessionSize::usual(&file.header)?.with(options.context, Some(options.batch));
    let layers_on_gpu = options.gpu()?.map_or(0, |_| options.layers_on_gpu.unwrap_or(u64::MAX));
    file.check_capacity(size, layers_on_gpu, options.capacity)?;
    let (mut printer, prompt) = Printer::new(options, &file.header)?;
    if prompt.is_empty() {
        return Err("the prompt has no tokens: expected at least one".into());
    }
    let ends = if options.ignore_end { Vec::new() } else { end_tokens(&file.header) };
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let gpu = match options.gpu()? {
        Some(number) => Some(find_gpu(number)? as Arc<dyn Device>),
        None => None,
    };
    let devices = Devices { cpu: Arc::new(CpuDevice::with_threads(threads)), gpu, layers_on_gpu };
    let mut session = Session::new(file.load(size, &devices)?, &devices)?;
    let mut sampler = Sampler::new(options.temperature, options.seed);

    if options.warm_up {
        session.feed(&prompt)?;
        // A GPU is recorded at the second run of a graph.
        for _ in 0..3.min(options.count.saturating_sub(1)) {
            session.feed(&prompt[..1])?;
        }
        session.restart();
    }
    let start = Instant::now();
    let mut scores = session.feed(&prompt)?;
    let prompt_seconds = start.elapsed().as_secs_f64();
    let (start, mut said) = (Instant::now(), 0u64);
    let count = if options.answer.is_empty() { options.count } else { options.answer.len() as u64 };
    for number in 0..count {
        let token = match usize::try_from(number).ok().and_then(|number| options.answer.get(number)) {
            Some(given) => *given,
            None => sampler.choose(&scores),
        };
        if options.answer.is_empty() && ends.contains(&token) {
            break;
        }
        printer.print(token, &scores)?;
        said += 1;
        if number + 1 < count {
            scores = session.feed(&[token])?;
        }
    }
    // The last token has not been computed with.
    let seconds = [prompt_seconds, start.elapsed().as_secs_f64()];
    printer.finish(&session, [prompt.len() as u64, said.saturating_sub(1)], seconds)
}

/// Returns the tokens that end a text.
fn end_tokens(header: &GgufHeader) -> Vec<i32> {
    let keys = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"];
    let token = |key| header.value(key)?.as_u64().and_then(|token| i32::try_from(token).ok());
    keys.into_iter().filter_map(token).collect()
}

/// Prints tokens as text, as numbers, or with their probabilities.
struct Printer {
    tokenizer: Option<Tokenizer>,
    /// Tokens whose text is not complete yet: letters may be made of several.
    pending: Vec<u32>,
    json: bool,
}

impl Printer {
    /// Returns a printer and the tokens of the prompt, which it has printed.
    fn new(options: &Options, header: &GgufHeader) -> Result<(Self, Vec<i32>), Failure> {
        let mut printer = Self { tokenizer: None, pending: Vec::new(), json: options.json };
        let Some(prompt) = &options.prompt else { return Ok((printer, options.tokens.clone())) };
        // The tokenizer is right for byte pairs; of other vocabularies it makes other tokens than llama.cpp.
        let kind = header.value("tokenizer.ggml.model").and_then(|value| value.as_text()).unwrap_or("none");
        if kind != "gpt2" {
            return Err(format!("-p: the vocabulary is not of byte pairs (gpt2) but {kind:?}: use --tokens").into());
        }
        let tokenizer = Tokenizer::from_gguf_file(&options.model)?;
        let tokens = tokenizer.encode(prompt, true)?;
        if !options.json {
            print!("{prompt}");
            stdout().flush()?;
        }
        printer.tokenizer = Some(tokenizer);
        Ok((printer, tokens.into_iter().map(i32::try_from).collect::<Result<_, _>>()?))
    }

    fn print(&mut self, token: i32, scores: &[f32]) -> Result<(), Failure> {
        if self.json {
            let best: Vec<String> =
                likeliest(scores, 5).into_iter().map(|(token, log)| format!("[{token},{log:.6}]")).collect();
            println!(r#"{{"token":{token},"likeliest":[{}]}}"#, best.join(","));
            return Ok(());
        }
        let Some(tokenizer) = &self.tokenizer else {
            print!("{token} ");
            return Ok(stdout().flush()?);
        };
        self.pending.push(u32::try_from(token)?);
        let text = tokenizer.decode(&self.pending, false)?;
        // A letter of which some bytes are missing ends so; one that never gets them is printed so as well.
        if !text.ends_with(char::REPLACEMENT_CHARACTER) || self.pending.len() > 8 {
            print!("{text}");
            stdout().flush()?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Prints what each device has given, and the tokens per second.
    fn finish(&self, session: &Session, tokens: [u64; 2], seconds: [f64; 2]) -> Result<(), Failure> {
        let speed = |index: usize| tokens[index] as f64 / seconds[index].max(1e-9);
        let bytes = session.bytes()?;
        if self.json {
            let devices: Vec<String> = bytes
                .iter()
                .map(|(name, placed, compute)| {
                    format!(r#"{{"device":"{name}","placed":{placed},"compute":{compute}}}"#)
                })
                .collect();
            let peak = peak_resident().map_or_else(|| "null".to_owned(), |bytes| bytes.to_string());
            println!(
                r#"{{"prompt_tokens":{},"prompt_per_second":{:.3},"tokens_per_second":{:.3},"graphs":{},"devices":[{}],"peak_resident":{peak}}}"#,
                tokens[0],
                speed(0),
                speed(1),
                session.graphs,
                devices.join(",")
            );
            return Ok(());
        }
        println!();
        let devices: Vec<String> = bytes
            .iter()
            .map(|(name, placed, compute)| format!("{name} {placed} bytes of weights and caches, {compute} of compute"))
            .collect();
        eprintln!(
            "{}; prompt {:.1} tokens/s, then {:.1} tokens/s, {} graphs",
            devices.join("; "),
            speed(0),
            speed(1),
            session.graphs
        );
        Ok(())
    }
}

/// Returns the GPU of this number.
#[cfg(feature = "cuda")]
fn find_gpu(number: usize) -> Result<Arc<CudaDevice>, Failure> {
    let devices = CudaDevice::all().map_err(|error| error.to_string())?;
    let count = devices.len();
    let device = devices.into_iter().nth(number);
    let device = device.ok_or_else(|| format!("cuda:{number}: no such GPU: this machine has {count}"))?;
    Ok(Arc::new(device))
}

#[cfg(not(feature = "cuda"))]
fn find_gpu(number: usize) -> Result<Arc<NullDevice>, Failure> {
    Err(format!("cuda:{number}: built without the feature cuda: cargo run --features cuda").into())
}

/// Returns the most memory that the process has had resident, where the system tells.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}
