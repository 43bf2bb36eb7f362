//! What is told of a text: tokens as they come, and bytes and speed at the end.

use std::io::{Write, stdout};

use crate::Failure;
use crate::options::Options;
use crate::sampler::likeliest;
use crate::session::Session;
use crate::vocabulary::Vocabulary;

/// Prints tokens as text, as numbers, or with their probabilities.
pub(crate) struct Printer {
    vocabulary: Vocabulary,
    /// Tokens whose text is not complete yet: letters may be made of several.
    pending: Vec<i32>,
    json: bool,
}

impl Printer {
    /// Returns a printer that has printed the prompt.
    pub(crate) fn new(options: &Options, vocabulary: Vocabulary) -> Result<Self, Failure> {
        if let Some(prompt) = options.prompt.as_ref().filter(|_| !options.json) {
            print!("{prompt}");
            stdout().flush()?;
        }
        Ok(Self { vocabulary, pending: Vec::new(), json: options.json })
    }

    pub(crate) fn print(&mut self, token: i32, scores: &[f32]) -> Result<(), Failure> {
        if self.json {
            let best: Vec<String> =
                likeliest(scores, 5).into_iter().map(|(token, log)| format!("[{token},{log:.6}]")).collect();
            println!(r#"{{"token":{token},"likeliest":[{}]}}"#, best.join(","));
            return Ok(());
        }
        self.pending.push(token);
        let text = self.vocabulary.text(&self.pending)?;
        // A letter of which some bytes are missing ends so; one that never gets them is printed so as well.
        if !text.ends_with(char::REPLACEMENT_CHARACTER) || self.pending.len() > 8 {
            self.flush()?;
        }
        Ok(())
    }

    /// Prints what is pending as it is.
    fn flush(&mut self) -> Result<(), Failure> {
        if !self.pending.is_empty() {
            print!("{}", self.vocabulary.text(&self.pending)?);
            stdout().flush()?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Prints what each device has given, and the tokens per second.
    pub(crate) fn finish(&mut self, session: &Session, tokens: [u64; 2], seconds: [f64; 2]) -> Result<(), Failure> {
        let speed = |index: usize| tokens[index] as f64 / seconds[index].max(1e-9);
        let bytes = session.bytes()?;
        self.flush()?;
        if self.json {
            let devices: Vec<String> = bytes
                .iter()
                .map(|(name, placed, compute)| {
                    format!(r#"{{"device":{name:?},"placed":{placed},"compute":{compute}}}"#)
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

/// Returns the most memory that the process has had resident, where the system tells.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}
