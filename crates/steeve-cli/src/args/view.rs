//! `steeve view`: what may be asked of it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use steeve_view::{Colouring, SvgStyle, Theme};

use super::{HowArgs, LimitArgs, SearchArgs};
use crate::out::OutFile;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve view graph.json.gz                     a map in the terminal
  steeve view graph.json.gz -o map.html         a page to zoom, search and click in, with ggml's plan beside ours
  steeve view yesterday.json today.json -o map.html
  steeve view graph.json.gz --ggml -o map.svg   a drawing for a paper, two plans on one scale
  steeve view net.graph -o net.h                arena sizes and offsets for a C program

Width is lifetime, height is size, vertical position is offset. A graph or a block list is planned as steeve plan would; a
plan that was saved, and a block list in which every block has an offset, are drawn as they stand (a block list is planned
anew with --strategy). A page works in any browser, from a file, without a network.

Without colours the map of the terminal has a letter for each kind. It is as wide as the terminal, or 80 columns if there
is none. A drawing merges what is too small to be seen, and says so.")]
pub(crate) struct ViewArgs {
    /// A graph, a block list or a saved plan; two of them are compared. - is the standard input.
    #[arg(required = true, value_name = "FILE", num_args = 1..=2)]
    pub(crate) files: Vec<PathBuf>,

    /// Write a page (.html), a drawing (.svg), a C header (.h) or the plan (.csv, .json, plain or .gz).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<OutFile>,

    /// Put ggml's own plan beside ours; a page has it anyway.
    #[arg(long)]
    pub(crate) ggml: bool,

    /// What stands above the picture [default: the name of the file].
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,

    /// Only this memory.
    #[arg(long, value_name = "NAME")]
    pub(crate) memory: Option<String>,

    /// Only these nodes of a graph, or steps of a block list, such as 0..250; the end is left out.
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    pub(crate) steps: Option<(u64, u64)>,

    /// What colours tell apart [default: role, name or size, whichever says most].
    #[arg(long, value_enum, alias = "color-by", value_name = "WHAT")]
    pub(crate) colour_by: Option<ColourName>,

    /// Columns of a map in the terminal, or pixels of a drawing.
    #[arg(long, value_name = "COUNT")]
    pub(crate) width: Option<usize>,

    /// Lines of a map in the terminal [default: 20], or pixels of each map of a drawing [default: 320].
    #[arg(long, value_name = "COUNT")]
    pub(crate) height: Option<usize>,

    /// The ground of a drawing; auto is as the reader has it.
    #[arg(long, value_enum, default_value_t = ThemeName::Auto)]
    pub(crate) theme: ThemeName,

    /// The most rectangles of a drawing; what is smaller is merged.
    #[arg(long, value_name = "COUNT", default_value_t = 6000)]
    pub(crate) rectangles: usize,

    /// How the constants of a C header begin [default: the name of the file].
    #[arg(long, value_name = "NAME")]
    pub(crate) prefix: Option<String>,

    /// Show sizes above a map in the terminal as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,

    #[command(flatten)]
    pub(crate) how: HowArgs,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Reads `0..250`.
fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let range = text.split_once("..").and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
    match range {
        Some((from, to)) if from < to => Ok((from, to)),
        _ => Err("a range is two numbers of which the second is larger, such as 0..250".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColourName {
    /// What tensors are for, guessed from names and operations.
    Role,
    /// What makes them.
    Operation,
    /// Their names without numbers.
    Name,
    /// How large they are.
    Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ThemeName {
    Auto,
    Light,
    Dark,
}

impl ViewArgs {
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
        const LEAST: u32 = 320;
        const MOST: u32 = 20_000;
        let theme = match self.theme {
            ThemeName::Auto => Theme::Auto,
            ThemeName::Light => Theme::Light,
            ThemeName::Dark => Theme::Dark,
        };
        let pixels = |count: usize, least: u32| u32::try_from(count).unwrap_or(MOST).clamp(least, MOST);
        let mut style =
            SvgStyle::default().with_colouring(self.colouring()).with_theme(theme).with_rectangles(self.rectangles);
        if let Some(width) = self.width {
            style.width = pixels(width, LEAST);
        }
        if let Some(height) = self.height {
            style.height = pixels(height, 40);
        }
        style
    }
}
