//! `steeve view`: a plan, or two, as a picture: in the terminal, as a page, as a drawing, or as a file for programs.

use std::io::{self, IsTerminal, Write};

use steeve_plan::{Bytes, Clipped, Step};
use steeve_view::{Picture, PlanMap, SizeFormat, StepUnit, TerminalStyle, terminal};

use crate::args::ViewArgs;
use crate::byte_size::SizeStyle;
use crate::element_alignment;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::input_file::ReadOptions;
use crate::input_source::InputSource;
use crate::map_loader::{LoadedMap, MapLoader};
use crate::output_file::{DrawingStyle, OutputFile, OutputFormat};
use crate::planned_file::{FilePlanner, PlannedFile};
use crate::progress_display::InterruptFlag;
use crate::text_table;
use crate::verbosity::{Verbosity, colours_allowed};

/// Draws one plan or two. The status is 1 if a plan does not hold or does not fit; it is drawn all the same.
pub(crate) fn run(args: &ViewArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    args.planning.check(&args.search)?;
    args.check_uses()?;
    let sources = args.sources()?;
    if let Some(out) = &args.out {
        out.check_inputs(&sources)?;
    }
    let interrupt = InterruptFlag::default();
    let planner = FilePlanner {
        planning: &args.planning,
        search: &args.search,
        limits: &args.limits,
        format: args.format(),
        interrupt: &interrupt,
        verbosity,
    };
    let names = map_names(&sources);
    let dims = args.dims.single()?;
    let loader = MapLoader { planner, options: ReadOptions { limit: args.input.limit(), dims: &dims } };
    let mut views = Vec::new();
    let mut status = ExitStatus::Success;
    for (source, name) in sources.iter().zip(&names) {
        let (loaded, said) = load(&loader, source, name.as_deref(), args)?;
        views.push(loaded);
        status = status.max(said);
    }
    dims.check_names()?;
    let picture = picture(&views, &sources, args);
    if args.engine && picture.maps.len() < 2 {
        verbosity.note(format!("{}: no plan of its engine to compare with", sources[0]));
    }
    let picture = match &args.memory {
        Some(memory) => select_memory(picture, memory)?,
        None => picture,
    };
    let picture = match args.steps {
        Some(range) => select_steps(picture, range)?,
        None => picture,
    };
    if picture.memories().is_empty() {
        verbosity.note(format!("{}: nothing to draw: no tensor needs memory", sources[0]));
    }
    match &args.out {
        Some(out) => write(out, &views, &picture, args, verbosity)?,
        None => write!(stdout, "{}", terminal(&picture, &terminal_style(args)?)).map_err(Error::Output)?,
    }
    Ok(status)
}

/// Returns the name of each map: that of one file is the planner's (`None`), those of two are the file names.
fn map_names(sources: &[InputSource]) -> Vec<Option<String>> {
    match sources {
        [_] => vec![None],
        _ => {
            let pairs: Vec<(String, String)> = sources.iter().map(|it| (it.short_name(), it.to_string())).collect();
            let file_labels =
                text_table::file_labels(pairs.iter().map(|(short, long)| (short.as_str(), long.as_str())));
            file_labels.into_iter().map(Some).collect()
        }
    }
}

/// Loads one file to draw.
fn load(
    loader: &MapLoader<'_>,
    source: &InputSource,
    name: Option<&str>,
    args: &ViewArgs,
) -> Result<(LoadedMap, ExitStatus), Error> {
    let (loaded, verbosity) = (loader.load(source, name)?, loader.planner.verbosity);
    loaded.check_options(&loader.planner)?;
    if args.format() == Some(OutputFormat::Header) {
        loaded.check_header()?;
    }
    if loaded.planned.is_none() {
        verbosity.detail(|| format!("{}: a plan, drawn as it stands", loaded.file));
    }
    let status = loaded.report_faults("drawn", verbosity);
    Ok((loaded, status))
}

/// Returns the picture of two files, or of one, with the engine's own plan of it in a page or on request.
fn picture(views: &[LoadedMap], sources: &[InputSource], args: &ViewArgs) -> Picture {
    let files = || sources.iter().map(InputSource::short_name).collect::<Vec<_>>().join(" and ");
    let title = args.title.clone().unwrap_or_else(files);
    match views {
        [before, after] => Picture::of_two(title, before.map.clone(), after.map.clone()),
        [one, ..] => {
            let beside = args.engine || args.format() == Some(OutputFormat::Page);
            match one.planned.as_ref().filter(|_| beside).and_then(PlannedFile::engine_map) {
                Some(engine) => Picture::of_two(title, engine, one.map.clone()),
                None => Picture::of(title, one.map.clone()),
            }
        }
        [] => Picture::of(title, PlanMap::new("", Vec::new())),
    }
}

fn select_memory(picture: Picture, memory: &str) -> Result<Picture, Error> {
    let names = picture.memories().join(", ");
    let picture = picture.only(memory);
    if picture.memories().is_empty() {
        return Err(Error::Usage(format!(
            "--memory {}: no such memory in use: expected one of {}",
            Clipped(memory),
            Clipped(&names)
        )));
    }
    Ok(picture)
}

fn select_steps(picture: Picture, (from, to): (u64, u64)) -> Result<Picture, Error> {
    let unit = picture.maps.first().map_or(StepUnit::Step, |map| map.unit);
    // Step 0 of a graph is before its first node.
    let shift = u64::from(unit == StepUnit::Node);
    let picture = picture.between(Step(from.saturating_add(shift)), Step(to.saturating_add(shift)));
    if picture.memories().is_empty() {
        let why = format!("--steps {from}..{to}: nothing is alive at these {}s", unit.word());
        return Err(Error::Usage(why));
    }
    Ok(picture)
}

fn write(
    out: &OutputFile,
    views: &[LoadedMap],
    picture: &Picture,
    args: &ViewArgs,
    verbosity: Verbosity,
) -> Result<(), Error> {
    let drawing = args.drawing();
    match (out.format, views) {
        (OutputFormat::Csv | OutputFormat::Json | OutputFormat::Tflite, [LoadedMap { planned: Some(planned), .. }]) => {
            planned.write(out, &drawing, verbosity)?
        }
        (OutputFormat::Csv | OutputFormat::Json | OutputFormat::Tflite, [LoadedMap { file, planned: None, .. }]) => {
            let why = format!(
                "{file}: is a plan already: expected .html, .svg or .h to draw it; to plan again: steeve plan -o"
            );
            return Err(Error::Usage(why));
        }
        (OutputFormat::Csv | OutputFormat::Json | OutputFormat::Tflite | OutputFormat::Header, [_, _, ..]) => {
            let why = format!(
                "{}: too many plans: expected one for this file type, got two; .html and .svg show both",
                out.name()
            );
            return Err(Error::Usage(why));
        }
        _ => out.write_picture(picture, views.first().map_or("", |view| &view.file), &drawing)?,
    }
    if out.format == OutputFormat::Header
        && let [LoadedMap { file, map, .. }] = views
    {
        element_alignment::note_misaligned_elements(file, map, verbosity);
    }
    let bytes = std::fs::metadata(out.name()).map_or(0, |about| about.len());
    verbosity.note(format!("{}: written, {}", out.name(), SizeStyle::Human.show(Bytes(bytes))));
    Ok(())
}

fn terminal_style(args: &ViewArgs) -> Result<TerminalStyle, Error> {
    const PIPED: usize = 80;
    // Each cell takes memory for each kind of block.
    const MOST: usize = 1000;
    if let Some(count) = args.width.max(args.height).filter(|count| *count > MOST) {
        let why = format!(
            "map too large for a terminal: expected at most {MOST} columns and lines, got {count}; draw it with -o map.svg"
        );
        return Err(Error::Usage(why));
    }
    let terminal = io::stdout().is_terminal();
    let width = args.width.unwrap_or_else(|| text_table::terminal_width().unwrap_or(PIPED).min(MOST));
    let style = if terminal && colours_allowed() { TerminalStyle::colour(width) } else { TerminalStyle::plain(width) };
    let sizes = if args.bytes { SizeFormat::Exact } else { SizeFormat::Human };
    Ok(style.with_height(args.height.unwrap_or(20)).with_colouring(args.colouring()).with_sizes(sizes))
}

impl LoadedMap {
    /// Refuses to write a C header of a plan that does not hold.
    fn check_header(&self) -> Result<(), Error> {
        let file = &self.file;
        if let Some(why) = &self.wrong {
            return Err(Error::DoesNotHold { file: file.clone(), why: why.clone() });
        }
        if self.is_reordered {
            let why = "a C header has no order of the nodes: plan with --order keep";
            return Err(Error::Usage(format!("{file}: {why}")));
        }
        Ok(())
    }
}

impl ViewArgs {
    fn sources(&self) -> Result<Vec<InputSource>, Error> {
        let sources: Vec<InputSource> = self.files.iter().map(|path| InputSource::new(path)).collect();
        match sources.as_slice() {
            [InputSource::Stdin, InputSource::Stdin] => {
                Err(Error::Usage("-: standard input given twice: expected it for one file".to_owned()))
            }
            [_, _, _, ..] => {
                let why = format!("view: too many files: expected one or two, got {}", sources.len());
                Err(Error::Usage(why))
            }
            [_, _] if self.engine => {
                let why = "--engine: expected one file, got two";
                Err(Error::Usage(why.to_owned()))
            }
            _ => Ok(sources),
        }
    }

    fn drawing(&self) -> DrawingStyle {
        DrawingStyle { svg: self.svg_style(), page: self.page_style(), prefix: self.prefix.clone() }
    }
}
