//! `steeve view`: a plan, or two, as a picture: in the terminal, as a page, as a drawing, or as a file for programs.

use std::io::{self, IsTerminal, Write};

use steeve_plan::{Bytes, Clipped, Step};
use steeve_view::{Picture, PlanMap, SizeFormat, StepUnit, TerminalStyle, terminal};

use crate::answer::{Answer, Voice, colours_allowed};
use crate::args::ViewArgs;
use crate::element;
use crate::error::Error;
use crate::loaded::{LoadedMap, MapLoader};
use crate::made::{Made, Making};
use crate::out::{Drawing, Form, OutFile};
use crate::progress::Interrupt;
use crate::size::SizeStyle;
use crate::source::Source;
use crate::table;

/// The answer is no where a plan does not hold or does not fit; it is drawn all the same.
pub(crate) fn run(args: &ViewArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    args.how.check(&args.search)?;
    args.check_uses()?;
    let sources = args.sources()?;
    if let Some(out) = &args.out {
        out.check_inputs(&sources)?;
    }
    let interrupt = Interrupt::default();
    let making = Making {
        how: &args.how,
        search: &args.search,
        limits: &args.limits,
        form: args.form(),
        interrupt: &interrupt,
        voice,
    };
    let names = names(&sources);
    let loader = MapLoader { making, limit: args.input.limit() };
    let mut views = Vec::new();
    let mut answer = Answer::Yes;
    for (source, name) in sources.iter().zip(&names) {
        let (loaded, said) = load(&loader, source, name.as_deref(), args)?;
        views.push(loaded);
        answer = answer.max(said);
    }
    let picture = picture(&views, &sources, args);
    if args.ggml && picture.maps.len() < 2 {
        voice.note(format!("{}: there is no plan of ggml's to put beside this one", sources[0]));
    }
    let picture = match &args.memory {
        Some(memory) => only(picture, memory)?,
        None => picture,
    };
    let picture = match args.steps {
        Some(range) => within(picture, range)?,
        None => picture,
    };
    if picture.memories().is_empty() {
        voice.note(format!("{}: nothing needs memory, so there is nothing to draw", sources[0]));
    }
    match &args.out {
        Some(out) => write(out, &views, &picture, args, voice)?,
        None => write!(stdout, "{}", terminal(&picture, &terminal_style(args)?)).map_err(Error::Output)?,
    }
    Ok(answer)
}

/// What a map is called: one file's after who made it, two after the files.
fn names(sources: &[Source]) -> Vec<Option<String>> {
    match sources {
        [_] => vec![None],
        _ => {
            let pairs: Vec<(String, String)> = sources.iter().map(|it| (it.short_name(), it.to_string())).collect();
            let labels = table::labels(pairs.iter().map(|(short, long)| (short.as_str(), long.as_str())));
            labels.into_iter().map(Some).collect()
        }
    }
}

/// One file to be drawn.
fn load(
    loader: &MapLoader<'_>,
    source: &Source,
    name: Option<&str>,
    args: &ViewArgs,
) -> Result<(LoadedMap, Answer), Error> {
    let (loaded, voice) = (loader.load(source, name)?, loader.making.voice);
    loaded.check_options(&loader.making)?;
    if args.form() == Some(Form::Header) {
        loaded.check_header()?;
    }
    if loaded.made.is_none() {
        voice.detail(|| format!("{}: a plan, drawn as it stands", loaded.file));
    }
    let answer = loaded.say_wrong("drawn", voice);
    Ok((loaded, answer))
}

/// Two files beside each other; or one, beside ggml's plan in a page or where that is asked for.
fn picture(views: &[LoadedMap], sources: &[Source], args: &ViewArgs) -> Picture {
    let files = || sources.iter().map(Source::short_name).collect::<Vec<_>>().join(" and ");
    let title = args.title.clone().unwrap_or_else(files);
    match views {
        [before, after] => Picture::of_two(title, before.map.clone(), after.map.clone()),
        [one, ..] => {
            let beside = args.ggml || args.form() == Some(Form::Page);
            match one.made.as_ref().filter(|_| beside).and_then(Made::ggml) {
                Some(ggml) => Picture::of_two(title, ggml, one.map.clone()),
                None => Picture::of(title, one.map.clone()),
            }
        }
        [] => Picture::of(title, PlanMap::new("", Vec::new())),
    }
}

fn only(picture: Picture, memory: &str) -> Result<Picture, Error> {
    let names = picture.memories().join(", ");
    let picture = picture.only(memory);
    if picture.memories().is_empty() {
        return Err(Error::Usage(format!(
            "--memory {}: there is no such memory with anything in it; there are: {}",
            Clipped(memory),
            Clipped(&names)
        )));
    }
    Ok(picture)
}

fn within(picture: Picture, (from, to): (u64, u64)) -> Result<Picture, Error> {
    let unit = picture.maps.first().map_or(StepUnit::Step, |map| map.unit);
    // Step 0 of a graph is before its first node.
    let shift = u64::from(unit == StepUnit::Node);
    let picture = picture.between(Step(from.saturating_add(shift)), Step(to.saturating_add(shift)));
    if picture.memories().is_empty() {
        let why = format!(
            "--steps {from}..{to}: nothing is alive at these {}s; leave it out to see all of them",
            unit.word()
        );
        return Err(Error::Usage(why));
    }
    Ok(picture)
}

fn write(out: &OutFile, views: &[LoadedMap], picture: &Picture, args: &ViewArgs, voice: Voice) -> Result<(), Error> {
    let drawing = args.drawing();
    match (out.form, views) {
        (Form::Csv | Form::Json, [LoadedMap { made: Some(made), .. }]) => made.write(out, &drawing)?,
        (Form::Csv | Form::Json, [LoadedMap { file, made: None, .. }]) => {
            let why = format!(
                "{file}: is a plan already, and is drawn as it stands; copy it, or plan anew with steeve plan -o"
            );
            return Err(Error::Usage(why));
        }
        (Form::Csv | Form::Json | Form::Header, [_, _, ..]) => {
            let why = format!(
                "{}: holds one plan, and there are two; name one file, or draw them as .html or .svg",
                out.name()
            );
            return Err(Error::Usage(why));
        }
        _ => out.write_picture(picture, views.first().map_or("", |view| &view.file), &drawing)?,
    }
    if out.form == Form::Header
        && let [LoadedMap { file, map, .. }] = views
    {
        element::note_unreadable(file, map, voice);
    }
    let bytes = std::fs::metadata(out.name()).map_or(0, |about| about.len());
    voice.note(format!("{}: written, {}", out.name(), SizeStyle::Human.show(Bytes(bytes))));
    Ok(())
}

fn terminal_style(args: &ViewArgs) -> Result<TerminalStyle, Error> {
    const PIPED: usize = 80;
    // Each cell takes memory for each kind of block.
    const MOST: usize = 1000;
    if let Some(count) = args.width.max(args.height).filter(|count| *count > MOST) {
        let why =
            format!("a map in the terminal has at most {MOST} columns and lines, not {count}; draw it with -o map.svg");
        return Err(Error::Usage(why));
    }
    let terminal = io::stdout().is_terminal();
    let width = args.width.unwrap_or_else(|| table::terminal_width().unwrap_or(PIPED).min(MOST));
    let style = if terminal && colours_allowed() { TerminalStyle::colour(width) } else { TerminalStyle::plain(width) };
    let sizes = if args.bytes { SizeFormat::Exact } else { SizeFormat::Human };
    Ok(style.with_height(args.height.unwrap_or(20)).with_colouring(args.colouring()).with_sizes(sizes))
}

impl LoadedMap {
    /// A header is for programs, so it is made only of what holds and says all that they need.
    fn check_header(&self) -> Result<(), Error> {
        let file = &self.file;
        if let Some(why) = &self.wrong {
            return Err(Error::DoesNotHold { file: file.clone(), why: why.clone() });
        }
        Ok(())
    }
}

impl ViewArgs {
    fn sources(&self) -> Result<Vec<Source>, Error> {
        let sources: Vec<Source> = self.files.iter().map(|path| Source::new(path)).collect();
        match sources.as_slice() {
            [Source::Stdin, Source::Stdin] => {
                Err(Error::Usage("only one of the files can be -, the standard input".to_owned()))
            }
            [_, _, _, ..] => {
                let why = format!(
                    "view draws one plan or compares two, and there are {} files; name one or two",
                    sources.len()
                );
                Err(Error::Usage(why))
            }
            [_, _] if self.ggml => {
                let why =
                    "--ggml puts ggml's plan beside that of one file, and there are two; leave out one or the other";
                Err(Error::Usage(why.to_owned()))
            }
            _ => Ok(sources),
        }
    }

    fn drawing(&self) -> Drawing {
        Drawing { svg: self.svg_style(), page: self.page_style(), prefix: self.prefix.clone() }
    }
}
