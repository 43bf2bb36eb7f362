//! A plan as a file: CSV or JSON, plain or gzip, as its name ends.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::Error;

/// Where to write a plan, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutFile {
    path: PathBuf,
    form: Form,
    packing: Packing,
}

/// A plan that can be written.
pub(crate) trait Document {
    /// One block per line.
    fn csv(&self) -> Result<String, Error>;

    /// One object, without the end of its line.
    fn json(&self) -> serde_json::Result<String>;
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

    /// Writes a plan. Where it has no such form, no file is touched.
    pub(crate) fn write(&self, plan: &dyn Document) -> Result<(), Error> {
        let failed = |source: io::Error| Error::Write { file: self.name(), source };
        let text = match self.form {
            Form::Csv => plan.csv()?,
            Form::Json => plan.json().map_err(|error| failed(error.into()))? + "\n",
        };
        let bytes = match self.packing {
            Packing::Plain => text.into_bytes(),
            Packing::Gzip => packed(&text).map_err(failed)?,
        };
        fs::write(&self.path, bytes).map_err(failed)
    }
}

fn packed(text: &str) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}
