//! A plan as a file: CSV or JSON, plain or gzip, as its name ends.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;

use flate2::Compression;
use flate2::write::GzEncoder;
use steeve_plan::Strategy;
use steeve_plan::csv::Table;

use crate::error::Error;
use crate::input::Job;
use crate::json::PlanFile;
use crate::solve::Solved;

/// Where to write a plan, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutFile {
    path: PathBuf,
    form: Form,
    packing: Packing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
}

impl FromStr for OutFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_lowercase();
        let (name, packing) = match name.strip_suffix(".gz") {
            Some(name) => (name, Packing::Gzip),
            None => (name.as_str(), Packing::Plain),
        };
        let form = if name.ends_with(".csv") {
            Form::Csv
        } else if name.ends_with(".json") {
            Form::Json
        } else {
            return Err("the name must end in .csv, .json, .csv.gz or .json.gz".to_owned());
        };
        Ok(Self { path: PathBuf::from(text), form, packing })
    }
}

impl OutFile {
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Writes the plans of a job, one after the other.
    pub(crate) fn write(&self, job: &Job, strategy: &Strategy, solved: &[Solved]) -> Result<(), Error> {
        let written = fs::File::create(&self.path).and_then(|file| {
            let mut file = BufWriter::new(file);
            match self.packing {
                Packing::Plain => self.form.write(job, strategy, solved, &mut file)?,
                Packing::Gzip => {
                    // JSON comes a few letters at a time, and each call of the encoder costs.
                    let mut packed = BufWriter::new(GzEncoder::new(&mut file, Compression::default()));
                    self.form.write(job, strategy, solved, &mut packed)?;
                    packed.into_inner()?.finish()?;
                }
            }
            file.flush()
        });
        written.map_err(|source| Error::Write { file: self.name(), source })
    }
}

impl Form {
    fn write(self, job: &Job, strategy: &Strategy, solved: &[Solved], to: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Csv => {
                for (memory, solved) in job.memories.iter().zip(solved) {
                    let table = Table::of_plan(&solved.plan, memory.ids.clone()).map_err(io::Error::other)?;
                    write!(to, "{table}")?;
                }
                Ok(())
            }
            Self::Json => {
                serde_json::to_writer(&mut *to, &PlanFile::new(job, strategy, solved))?;
                writeln!(to)
            }
        }
    }
}
