//! Where a plan is written to: data, a picture or a C header, as the file's name ends; data may be gzip. Or a folder, with a file for
//! each graph.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flate2::Compression;
use flate2::write::GzEncoder;
use steeve_models::{FileIdentity, write_atomically};
use steeve_view::{HeaderStyle, PageStyle, Picture, SvgStyle, header, page, svg};

use crate::error::Error;
use crate::input_source::InputSource;

/// Where to write a plan, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFile {
    path: PathBuf,
    pub(crate) format: OutputFormat,
    compression: OutputCompression,
}

/// Where to write plans: that of one file, or those of several graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputTarget {
    File(OutputFile),
    Folder(OutputFolder),
}

/// A folder for plans of graphs, each under the name by which the drop-in looks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFolder(PathBuf);

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Csv,
    Json,
    Header,
    Page,
    Svg,
    /// The model with its plan.
    Tflite,
    /// The graph itself, as text.
    Graph,
}

/// How pictures and headers look.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrawingStyle {
    pub(crate) svg: SvgStyle,
    pub(crate) page: PageStyle,
    /// How the constants of a header begin; else as the file is called.
    pub(crate) prefix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputCompression {
    Plain,
    Gzip,
}

impl FromStr for OutputFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str = "unknown file type: expected .html, .svg, .h, .tflite, .csv, .json, .csv.gz or .json.gz";
        let name = text.to_lowercase();
        let (name, compression) = match name.strip_suffix(".gz") {
            Some(name) => (name, OutputCompression::Gzip),
            None => (name.as_str(), OutputCompression::Plain),
        };
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let format = match (ending, compression) {
            ("csv", _) => OutputFormat::Csv,
            ("json", _) => OutputFormat::Json,
            ("h", OutputCompression::Plain) => OutputFormat::Header,
            ("html" | "htm", OutputCompression::Plain) => OutputFormat::Page,
            ("svg", OutputCompression::Plain) => OutputFormat::Svg,
            ("tflite", OutputCompression::Plain) => OutputFormat::Tflite,
            _ => return Err(WRONG.to_owned()),
        };
        Ok(Self { path: PathBuf::from(text), format, compression })
    }
}

impl FromStr for OutputTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with('/') || Path::new(text).is_dir() {
            return Ok(Self::Folder(OutputFolder(PathBuf::from(text))));
        }
        match text.parse() {
            Ok(file) => Ok(Self::File(file)),
            Err(why) => Err(format!("{why}, or a folder, which ends in /")),
        }
    }
}

impl OutputFolder {
    /// Makes the folder, if the one around it is there.
    pub(crate) fn make(&self) -> Result<(), Error> {
        match fs::create_dir(&self.0) {
            Err(_) if self.0.is_dir() => Ok(()),
            Err(source) => Err(Error::PlanFolder { folder: self.0.display().to_string(), source }),
            Ok(()) => Ok(()),
        }
    }

    /// Returns a packed file of data in the folder.
    pub(crate) fn file(&self, name: &str) -> OutputFile {
        OutputFile { path: self.0.join(name), format: OutputFormat::Json, compression: OutputCompression::Gzip }
    }
}

impl OutputFile {
    /// Reads the name of a file for a graph that fits, or for its plan.
    pub(crate) fn of_fitted(text: &str) -> Result<Self, String> {
        if text.to_lowercase().ends_with(".graph") {
            let (format, compression) = (OutputFormat::Graph, OutputCompression::Plain);
            return Ok(Self { path: PathBuf::from(text), format, compression });
        }
        match text.parse::<Self>() {
            Ok(Self { format: OutputFormat::Header | OutputFormat::Tflite, .. }) | Err(_) => {
                Err("unknown file type: expected .graph, .json, .csv, .json.gz, .csv.gz, .html or .svg".to_owned())
            }
            Ok(file) => Ok(file),
        }
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Draws a picture of the plan of a file. A header is made of its last map; data is none.
    pub(crate) fn write_picture(&self, picture: &Picture, file: &str, drawing: &DrawingStyle) -> Result<(), Error> {
        let text = match (self.format, picture.maps.last()) {
            (OutputFormat::Page, _) => page(picture, &drawing.page),
            (OutputFormat::Header, Some(map)) => {
                let style = match &drawing.prefix {
                    Some(prefix) => {
                        let mut style = HeaderStyle::of_file(file);
                        style.prefix = prefix.to_ascii_uppercase();
                        style
                    }
                    None => HeaderStyle::of_file(file),
                };
                header(map, &style)
            }
            _ => svg(picture, &drawing.svg),
        };
        self.write_text(text)
    }

    /// Refuses to write over a file that is read, however the two are spelled.
    pub(crate) fn check_inputs<'a>(&self, inputs: impl IntoIterator<Item = &'a InputSource>) -> Result<(), Error> {
        let Some(own) = FileIdentity::of_path(&self.path) else { return Ok(()) };
        match inputs.into_iter().find(|input| input.identity().as_ref() == Some(&own)) {
            Some(input) => Err(Error::OverInput { file: self.name(), input: input.to_string() }),
            None => Ok(()),
        }
    }

    pub(crate) fn write_error(&self, source: io::Error) -> Error {
        let file = self.name();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace { file },
            ErrorKind::IsADirectory => Error::Folder { file },
            _ => Error::Write { file, source },
        }
    }

    pub(crate) fn write_text(&self, text: String) -> Result<(), Error> {
        let bytes = match self.compression {
            OutputCompression::Plain => text.into_bytes(),
            OutputCompression::Gzip => packed(&text).map_err(|source| self.write_error(source))?,
        };
        self.write_bytes(&bytes)
    }

    pub(crate) fn write_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        write_atomically(&self.path, bytes).map_err(|source| self.write_error(source))
    }
}

fn packed(text: &str) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}
