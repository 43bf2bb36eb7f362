//! `--dim`: the sizes of the dimensions that an ONNX model leaves free.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use clap::Args;
use steeve_models::onnx::DimSizes;
use steeve_plan::Clipped;

use crate::error::Error;

/// The sizes of a model's free dimensions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "ONNX models")]
pub(crate) struct DimArgs {
    /// Size of a dimension that an ONNX model leaves free, such as batch=1; may be repeated. An error lists those
    /// that are left. With several sizes, as in batch=1,8,64, steeve plan shows each
    #[arg(long, value_name = "NAME=SIZE[,SIZE]", value_parser = parse_dim, verbatim_doc_comment)]
    dim: Vec<DimChoice>,
}

/// A dimension and its sizes, one or more.
#[derive(Clone, Debug)]
pub(crate) struct DimChoice {
    name: String,
    sizes: Vec<u64>,
}

/// Reads `NAME=SIZE` or `NAME=SIZE,SIZE`; a name may have a `=` of its own.
fn parse_dim(text: &str) -> Result<DimChoice, String> {
    let expected = |what: &str| format!("{what}: expected NAME=SIZE, such as batch=1, got {:?}", Clipped(text));
    let (name, sizes) = text.rsplit_once('=').ok_or_else(|| expected("not a dimension"))?;
    if name.trim().is_empty() {
        return Err(expected("no name"));
    }
    let size = |text: &str| text.trim().parse().map_err(|_| expected("not a size"));
    Ok(DimChoice { name: name.trim().to_owned(), sizes: sizes.split(',').map(size).collect::<Result<_, _>>()? })
}

impl DimArgs {
    /// Returns the sizes, of which each dimension has one.
    pub(crate) fn single(&self) -> Result<GivenDims, Error> {
        match self.dim.iter().find(|choice| choice.sizes.len() > 1) {
            Some(DimChoice { name, sizes }) => {
                let why = format!("--dim {name}: expected one size, got {}; steeve plan takes several", sizes.len());
                Err(Error::Usage(why))
            }
            None => self.all(),
        }
    }

    /// Returns the sizes for each choice, those of the last dimension changing first.
    pub(crate) fn all(&self) -> Result<GivenDims, Error> {
        Ok(GivenDims { settings: self.each()?, asked: RefCell::default(), has_failed: Cell::new(false) })
    }

    fn each(&self) -> Result<Vec<DimSetting>, Error> {
        let mut settings = Vec::new();
        let mut at = vec![0; self.dim.len()];
        loop {
            let chosen = self.dim.iter().zip(&at).filter(|(choice, _)| choice.sizes.len() > 1);
            let chosen: Vec<String> =
                chosen.map(|(choice, at)| format!("{}={}", choice.name, choice.sizes[*at])).collect();
            let sizes = self.dim.iter().zip(&at).map(|(choice, at)| (choice.name.clone(), choice.sizes[*at]));
            let sizes = DimSizes::new(sizes).map_err(|error| Error::Usage(format!("--dim: {error}")))?;
            settings.push(DimSetting { sizes, chosen: chosen.join(" ") });
            let Some(next) = (0..at.len()).rev().find(|dim| at[*dim] + 1 < self.dim[*dim].sizes.len()) else {
                return Ok(settings);
            };
            at[next] += 1;
            at[next + 1..].fill(0);
        }
    }
}

/// One size for each dimension.
#[derive(Clone, Debug)]
pub(crate) struct DimSetting {
    pub(crate) sizes: DimSizes,
    /// The sizes of the dimensions that have several, such as `batch=8`; empty if none has.
    pub(crate) chosen: String,
}

/// The sizes that the command line gives, and which of them a model has asked for.
#[derive(Debug)]
pub(crate) struct GivenDims {
    settings: Vec<DimSetting>,
    asked: RefCell<BTreeSet<String>>,
    has_failed: Cell<bool>,
}

impl GivenDims {
    /// Returns no sizes, for files that are no models.
    pub(crate) fn none() -> Self {
        let settings = vec![DimSetting { sizes: DimSizes::default(), chosen: String::new() }];
        Self { settings, asked: RefCell::default(), has_failed: Cell::new(false) }
    }

    /// Returns at least one.
    pub(crate) fn settings(&self) -> &[DimSetting] {
        &self.settings
    }

    /// Notes which dimensions a model leaves free.
    pub(crate) fn note(&self, names: &mut dyn Iterator<Item = &str>) {
        self.asked.borrow_mut().extend(names.map(str::to_owned));
    }

    /// Notes that a file could not be read: its dimensions are not known.
    pub(crate) fn note_failure(&self) {
        self.has_failed.set(true);
    }

    /// Fails if a size was given of a dimension that no model has.
    pub(crate) fn check_names(&self) -> Result<(), Error> {
        let asked = self.asked.borrow();
        let unknown = self.settings[0].sizes.iter().find(|(name, _)| !asked.contains(*name));
        match unknown.filter(|_| !self.has_failed.get()) {
            None => Ok(()),
            Some((name, _)) => {
                let known: Vec<String> = asked.iter().map(|name| format!("{:?}", Clipped(name))).collect();
                let known = match known.as_slice() {
                    [] => "no model here leaves a dimension free".to_owned(),
                    _ => format!("expected one of {}", known.join(", ")),
                };
                Err(Error::Usage(format!("--dim {}: no such dimension: {known}", Clipped(name))))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{DimArgs, parse_dim};

    #[test]
    fn sizes_are_combined_and_the_last_changes_first() {
        let dim = ["batch=1,8", "a=b=3", "sequence=16, 32"].map(|text| parse_dim(text).unwrap()).to_vec();
        let args = DimArgs { dim };
        let all = args.all().unwrap();
        let each: Vec<&str> = all.settings().iter().map(|it| it.chosen.as_str()).collect();
        let expected = ["batch=1 sequence=16", "batch=1 sequence=32", "batch=8 sequence=16", "batch=8 sequence=32"];
        assert_eq!(each, expected);
        assert!(args.single().is_err());
        assert_eq!(all.settings()[3].sizes.get("a=b"), Some(3));
        assert_eq!(DimArgs::default().all().unwrap().settings().len(), 1);
        for wrong in ["batch", "=1", "batch=", "batch=-1", "batch=1,", "batch=x"] {
            assert!(parse_dim(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_no_model_has_is_an_error() {
        let given = DimArgs { dim: vec![parse_dim("batch=1").unwrap()] }.single().unwrap();
        assert!(given.check_names().is_err());
        given.note(&mut ["n", "batch"].into_iter());
        assert!(given.check_names().is_ok());
    }
}
