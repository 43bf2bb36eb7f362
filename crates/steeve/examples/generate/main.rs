//! Text from a language model in a GGUF file: weights where they are in the mapped file, caches and compute memory planned, one
//! graph for many tokens.
//!
//!     cargo run --release -p steeve --example generate -- model.gguf -p "The capital of France is" -n 32
//!     cargo run --release -p steeve --example generate -- model.gguf --tokens 2,818,5279 --temperature 0.8 --seed 7
//!     cargo run --release -p steeve --features cuda --example generate -- model.gguf -p "Hello" --device cuda:0 --layers-on-gpu 20

mod options;
mod model_file;
mod printer;
mod session;
mod sampler;
mod vocabulary;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use steeve::prelude::*;

use crate::model_file::{Devices, ModelFile};
use crate::options::Options;
use crate::printer::Printer;
use crate::sampler::Sampler;
use crate::session::Session;
use crate::vocabulary::{Vocabulary, end_tokens};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", chain("error", &*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns an error with what it is about before it and its causes behind it.
fn chain(about: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.fold(about.to_owned(), |text, cause| format!("{text}: {cause}"))
}

fn run(options: &Options) -> Result<(), Failure> {
    let file = ModelFile::open(&options.model)?;
    let size = file.usual_size()?.with(options.context, Some(options.batch));
    let layers_on_gpu = options.gpu()?.map_or(0, |_| options.layers_on_gpu.unwrap_or(u64::MAX));
    file.check_capacity(size, layers_on_gpu, options.capacity)?;
    let vocabulary = Vocabulary::new(options, &file.header)?;
    let prompt = vocabulary.prompt(options)?;
    if prompt.is_empty() {
        return Err("the prompt has no tokens: expected at least one".into());
    }
    // The last token that is generated is not computed with.
    let answer = options.answer.split_last().map_or(&[][..], |(_, computed)| computed);
    file.check_text(size, &[&prompt, answer])?;
    let room = size.context - prompt.len() as u64 + 1;
    let ends = if options.ignore_end { Vec::new() } else { end_tokens(&file.header) };
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, usize::from);
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
        for _ in 0..3.min(options.count.saturating_sub(1)).min(room - 1) {
            session.feed(&prompt[..1])?;
        }
        session.restart();
    }
    let mut printer = Printer::new(options, vocabulary)?;
    let start = Instant::now();
    let mut scores = session.feed(&prompt)?;
    let prompt_seconds = start.elapsed().as_secs_f64();
    let (start, mut computed) = (Instant::now(), 0u64);
    let count = if options.answer.is_empty() { options.count.min(room) } else { options.answer.len() as u64 };
    for number in 0..count {
        let token = match usize::try_from(number).ok().and_then(|number| options.answer.get(number)) {
            Some(given) => *given,
            None => sampler.choose(&scores),
        };
        if options.answer.is_empty() && ends.contains(&token) {
            break;
        }
        printer.print(token, &scores)?;
        // The last one is not computed with.
        if number + 1 < count {
            scores = session.feed(&[token])?;
            computed += 1;
        }
    }
    let seconds = [prompt_seconds, start.elapsed().as_secs_f64()];
    printer.finish(&session, [prompt.len() as u64, computed], seconds)
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use steeve::graph::InputLimit;
    use steeve_models::gguf::{Architecture, GgufHeader, SmallGguf};

    use super::*;

    /// A file that is gone at the end.
    struct TemporaryModel(PathBuf);

    impl TemporaryModel {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("steeve-generate-{}-{name}.gguf", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }

        /// Runs the example with these options.
        fn run(&self, options: &str) -> Result<(), String> {
            let model = self.0.display().to_string();
            let words = ["generate", &model].into_iter().chain(options.split_whitespace());
            let options = Options::try_parse_from(words).map_err(|error| error.to_string())?;
            run(&options).map_err(|error| error.to_string())
        }
    }

    impl Drop for TemporaryModel {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn every_family_goes_on_with_a_text() {
        for architecture in Architecture::ALL {
            let model =
                TemporaryModel::new(architecture.name(), &SmallGguf::language_model(architecture, 3).to_bytes());
            // More than a batch, and more than the rows of a window.
            let prompt = (0..300).map(|token| (token % 16).to_string()).collect::<Vec<_>>().join(",");
            model.run(&format!("--tokens {prompt} -n 20 --batch 64 --warm-up --temperature 1 --json")).unwrap();
            model.run(&format!("--tokens {prompt} --answer 1,2,3 --context 512 --capacity 100M")).unwrap();
            // What is generated ends with the context.
            model.run("--tokens 1,2,3 --context 8 -n 100 --warm-up --ignore-end").unwrap();
            model.run("--tokens 1,2,3 --context 3 -n 100 --warm-up --ignore-end").unwrap();
        }
    }

    #[test]
    fn what_can_not_be_done_is_told_before_anything_is_loaded() {
        let small = SmallGguf::language_model(Architecture::Llama, 3);
        let model = TemporaryModel::new("refused", &small.to_bytes());
        let refused = |options: &str, words: &[&str]| {
            let error = model.run(options).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{options}: {error}");
        };
        refused("--tokens 1 --capacity 1K", &["CPU", "does not fit", "1024 bytes", "weights", "caches", "compute"]);
        refused("--tokens 1,2,3 --context 2", &["--context 2", "3 tokens"]);
        refused("--tokens 1,16", &["token 16", "0 to 15"]);
        refused("--tokens 1 --answer 16,2", &["token 16", "0 to 15"]);
        refused("--tokens 1,2 --context 3 --answer 1,2,3", &["--context 3", "4 tokens"]);
        refused("--tokens=-1", &["token -1"]);
        refused("-p text", &["-p", "gpt2", "--tokens"]);
        refused("--tokens 1 --device gpu", &["--device gpu", "cuda:0"]);
        refused("--tokens 1 --layers-on-gpu 1", &["--layers-on-gpu", "--device"]);
        refused("--tokens 1 --batch 0", &["batch", "got 0"]);
        refused("--tokens 1 --capacity much", &["whole number of bytes"]);
        refused("--tokens 1 --temperature nan", &["temperature", "from 0 on"]);
        refused("--tokens 1 --temperature -1", &["temperature", "from 0 on"]);
        refused("--tokens 1 --threads 0", &["threads", "zero"]);
        let cut = TemporaryModel::new("cut", &small.to_bytes()[..small.header_bytes().len() + 64]);
        let error = cut.run("--tokens 1").unwrap_err();
        assert!(error.contains("cut.gguf") && error.contains("data outside the file"), "{error}");
        let other = TemporaryModel::new("other", b"GGML and more").run("--tokens 1").unwrap_err();
        assert!(other.contains("other.gguf") && other.contains("not a GGUF file"), "{other}");
    }

    /// A model of byte pairs whose vocabulary is cut as `cut`.
    fn byte_pairs(cut: &str) -> SmallGguf {
        let mut file = SmallGguf::language_model(Architecture::Llama, 3);
        let mut tokens = vec!["a", "b", "ab", "<|begin|>", "<|stop|>", "<|im_end|>"];
        tokens.extend(["c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]);
        file.text("tokenizer.ggml.model", "gpt2");
        file.text("tokenizer.ggml.pre", cut);
        file.texts("tokenizer.ggml.tokens", &tokens);
        file.texts("tokenizer.ggml.merges", &["a b"]);
        file.number("tokenizer.ggml.bos_token_id", 3);
        file.number("tokenizer.ggml.eos_token_id", 4);
        file
    }

    fn tokens_of(file: &SmallGguf, text: &str) -> Vec<i32> {
        let model = TemporaryModel::new(&format!("text-{}", file.to_bytes().len()), &file.to_bytes());
        let options = Options::try_parse_from(["generate", &model.0.display().to_string(), "-p", text]).unwrap();
        let header = ModelFile::open(&options.model).unwrap().header;
        Vocabulary::new(&options, &header).unwrap().prompt(&options).unwrap()
    }

    #[test]
    fn a_text_begins_as_in_llama_cpp() {
        assert_eq!(tokens_of(&byte_pairs("gpt-2"), "abba"), [2, 1, 0]);
        // Those of Llama 3 begin with a token of their own, if the file does not say otherwise.
        assert_eq!(tokens_of(&byte_pairs("llama-bpe"), "abba"), [3, 2, 1, 0]);
        for (says, begin) in [(0, vec![2]), (1, vec![3, 2])] {
            for cut in ["gpt-2", "llama-bpe"] {
                let mut file = byte_pairs(cut);
                file.value("tokenizer.ggml.add_bos_token", 7, &[says]);
                assert_eq!(tokens_of(&file, "ab"), begin, "{cut}");
            }
        }
    }

    #[test]
    fn a_text_that_would_be_cut_otherwise_is_refused() {
        let model = TemporaryModel::new("cut-as", &byte_pairs("tekken").to_bytes());
        let error = model.run("-p ab").unwrap_err();
        assert!(error.contains("tekken") && error.contains("--tokens"), "{error}");
    }

    #[test]
    fn a_text_ends_where_the_file_says_and_where_texts_say() {
        let header = GgufHeader::read(byte_pairs("gpt-2").to_bytes().as_slice(), InputLimit::DEFAULT).unwrap();
        assert_eq!(end_tokens(&header), [4, 5]);
    }
}
