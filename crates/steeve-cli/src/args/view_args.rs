//! `steeve view`: what may be asked of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use steeve_plan::Clipped;
use steeve_view::{Colouring, PageStyle, SvgStyle, Theme};

use super::{DimArgs, InputArgs, LimitArgs, PlanningArgs, SearchArgs, parse_count};
use crate::error::Error;
use crate::output_file::{OutputFile, OutputFormat};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve view graph.json.gz                     a map in the terminal
  steeve view graph.json.gz -o map.html         a page to zoom, search and click in, with ggml's plan beside ours
  steeve view yesterday.json today.json -o map.html
  steeve view graph.json.gz --engine -o map.svg a drawing for a paper, two plans on one scale
  steeve view net.graph -o net.h                arena sizes and offsets for a C program

Width is lifetime, height is size, vertical position is offset. A graph or a block list is planned as by steeve plan; a
saved plan, and a block list in which every block has an offset, are drawn as they are (--strategy plans a block list
again). A page works in any browser, from a file, without a network. In a C header every offset is aligned at least to the
largest element, unless --align says otherwise.

Without colours the map of the terminal has a letter for each kind. It is as wide as the terminal, or 80 columns if there
is none. A drawing merges what is too small to be seen, and says so.")]
pub(crate) struct ViewArgs {
    /// A graph, a block list or a saved plan; two of them are compared. - is the standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Write a page (.html), a drawing (.svg), a C header (.h) or the plan (.csv, .json, plain or .gz).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<OutputFile>,

    /// Draw the plan of the graph's own engine (ggml, or TensorFlow Lite Micro) beside ours; a page always has it.
    #[arg(long, visible_alias = "ggml")]
    pub(crate) engine: bool,

    /// Title of the picture [default: the name of the file].
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,

    /// Draw only this memory.
    #[arg(long, value_name = "NAME")]
    pub(crate) memory: Option<String>,

    /// Draw only what is alive at these nodes of a graph, or steps of a block list, such as 0..250 (end exclusive).
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    pub(crate) steps: Option<(u64, u64)>,

    /// What colours distinguish [default: role, name or size, whichever says most].
    #[arg(long, value_enum, alias = "color-by", value_name = "WHAT")]
    pub(crate) colour_by: Option<ColourName>,

    /// Columns of a map in the terminal, or pixels of a drawing.
    #[arg(long, value_name = "COUNT", value_parser = parse_extent)]
    pub(crate) width: Option<usize>,

    /// Lines of a map in the terminal [default: 20], or pixels of each map of a drawing [default: 320].
    #[arg(long, value_name = "COUNT", value_parser = parse_extent)]
    pub(crate) height: Option<usize>,

    /// Colour theme of a page or a drawing [default: auto, as the reader's system has it].
    #[arg(long, value_enum)]
    pub(crate) theme: Option<ThemeName>,

    /// Maximum number of rectangles in a drawing; smaller blocks are merged [default: 6000].
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub(crate) rectangles: Option<usize>,

    /// Prefix of the constants in a C header, a C identifier; written in capitals [default: the name of the file].
    #[arg(long, value_name = "NAME", value_parser = parse_prefix)]
    pub(crate) prefix: Option<String>,

    /// Show sizes above a map in the terminal as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,
}

/// Reads `0..250`.
fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let range = text.split_once("..").and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
    match range {
        Some((from, to)) if from < to => Ok((from, to)),
        _ => Err(format!(
            "not a range: expected two numbers, the second larger, such as 0..250, got {:?}",
            Clipped(text)
        )),
    }
}

/// Reads a name that C takes as it is.
fn parse_prefix(text: &str) -> Result<String, String> {
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    if starts && text.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_') {
        return Ok(text.to_owned());
    }
    Err(format!(
        "not a C identifier: expected letters, digits and underscores, no digit first, got {:?}",
        Clipped(text)
    ))
}

/// The most columns, lines or pixels that can be asked for.
const MOST: usize = 20_000;

fn parse_extent(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=MOST) => Ok(count),
        _ => Err(format!("not a width or height: expected a number from 1 to {MOST}, got {:?}", Clipped(text))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColourName {
    /// The role of a tensor, guessed from names and operations.
    Role,
    /// The operation that computes it.
    Operation,
    /// Its name without numbers.
    Name,
    /// Its size.
    Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThemeName {
    Auto,
    Light,
    Dark,
}

/// Where something is drawn or written: nowhere but in the terminal, or in a file of this form.
type ViewTarget = Option<OutputFormat>;

const PICTURES: &[ViewTarget] = &[None, Some(OutputFormat::Page), Some(OutputFormat::Svg)];

fn target_name(target: ViewTarget) -> &'static str {
    match target {
        None => "a map in the terminal",
        Some(OutputFormat::Page) => "a page (.html)",
        Some(OutputFormat::Svg) => "a drawing (.svg)",
        Some(OutputFormat::Header) => "a C header (.h)",
        Some(OutputFormat::Json) => "a plan for programs (.json)",
        Some(OutputFormat::Csv) => "a plan for programs (.csv)",
        Some(OutputFormat::Tflite) => "a model with its plan (.tflite)",
        Some(OutputFormat::Graph) => "a graph (.graph)",
    }
}

impl ViewArgs {
    pub(crate) fn format(&self) -> Option<OutputFormat> {
        self.out.as_ref().map(|out| out.format)
    }

    /// Refuses options that would change nothing about what is asked for.
    pub(crate) fn check_uses(&self) -> Result<(), Error> {
        let options: [(&str, bool, &[ViewTarget]); 11] = [
            ("--engine", self.engine, PICTURES),
            ("--title", self.title.is_some(), PICTURES),
            ("--memory", self.memory.is_some(), PICTURES),
            ("--steps", self.steps.is_some(), PICTURES),
            ("--colour-by", self.colour_by.is_some(), PICTURES),
            ("--width", self.width.is_some(), &[None, Some(OutputFormat::Svg)]),
            ("--height", self.height.is_some(), &[None, Some(OutputFormat::Svg)]),
            ("--theme", self.theme.is_some(), &[Some(OutputFormat::Page), Some(OutputFormat::Svg)]),
            ("--rectangles", self.rectangles.is_some(), &[Some(OutputFormat::Svg)]),
            ("--prefix", self.prefix.is_some(), &[Some(OutputFormat::Header)]),
            ("--bytes", self.bytes, &[None]),
        ];
        let target = self.format();
        match options.iter().find(|(_, given, uses)| *given && !uses.contains(&target)) {
            None => Ok(()),
            Some((option, _, uses)) => {
                let uses = uses.iter().map(|it| target_name(*it)).collect::<Vec<_>>().join(" or ");
                Err(Error::Usage(format!("{option}: not used for {}: expected {uses}", target_name(target))))
            }
        }
    }

    pub(crate) fn page_style(&self) -> PageStyle {
        PageStyle::default().with_colouring(self.colouring()).with_theme(self.ground())
    }

    fn ground(&self) -> Theme {
        match self.theme {
            None | Some(ThemeName::Auto) => Theme::Auto,
            Some(ThemeName::Light) => Theme::Light,
            Some(ThemeName::Dark) => Theme::Dark,
        }
    }

    pub(crate) fn colouring(&self) -> Colouring {
        match self.colour_by {
            None => Colouring::Fitting,
            Some(ColourName::Role) => Colouring::Role,
            Some(ColourName::Operation) => Colouring::Operation,
            Some(ColourName::Name) => Colouring::Name,
            Some(ColourName::Size) => Colouring::Size,
        }
    }

    pub(crate) fn svg_style(&self) -> SvgStyle {
        // What is smaller has no room for its labels.
        const LEAST: (u32, u32) = (320, 40);
        let pixels = |count: usize, least: u32| u32::try_from(count).unwrap_or(least).max(least);
        let mut style = SvgStyle::default().with_colouring(self.colouring()).with_theme(self.ground());
        if let Some(rectangles) = self.rectangles {
            style = style.with_rectangles(rectangles);
        }
        if let Some(width) = self.width {
            style.width = pixels(width, LEAST.0);
        }
        if let Some(height) = self.height {
            style.height = pixels(height, LEAST.1);
        }
        style
    }
}
