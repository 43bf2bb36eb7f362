//! The report of a check.

use std::error::Error;
use std::fmt;

use crate::DeviceError;

/// The report of a check: a plain value.
///
/// ```
/// use steeve_device::conformance::check_device;
/// use steeve_device::NullDevice;
/// let report = check_device(&NullDevice::new("plan"));
/// assert!(report.is_ok() && report.has_checked("plan: it has a name"));
/// assert!(report.to_string().ends_with(", 0 failures"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The name of what was checked.
    pub subject: String,
    /// The laws that were checked, in order, those that do not hold among them.
    pub checked: Vec<String>,
    /// The laws, or the cases of one, that could not be checked.
    pub skipped: Vec<Skipped>,
    /// The laws that do not hold.
    pub failures: Vec<Failure>,
}

/// A law that could not be checked, or not in every case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The law.
    pub law: String,
    /// The reason.
    pub why: String,
}

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The law.
    pub law: String,
    /// What was observed, with the numbers.
    pub what: String,
}

impl Report {
    /// Returns whether every law that was checked holds, and there was one.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty() && !self.checked.is_empty()
    }

    /// Ends a test.
    ///
    /// # Panics
    ///
    /// Unless [`is_ok`](Self::is_ok), with all failures; with what was skipped if no law was checked.
    #[track_caller]
    pub fn assert(&self) {
        assert!(!self.checked.is_empty(), "{self:#}");
        assert!(self.is_ok(), "{self}");
    }

    /// Returns whether the law was checked.
    pub fn has_checked(&self, law: &str) -> bool {
        self.checked.iter().any(|checked| checked == law)
    }

    pub(crate) fn new(subject: String) -> Self {
        Self { subject, ..Self::default() }
    }

    /// Checks one law: `act` records what it finds.
    pub(crate) fn check(&mut self, law: &str, act: impl FnOnce(&mut Findings) -> Result<(), LawAbort>) {
        let mut findings = Findings::default();
        let end = act(&mut findings);
        self.record(law, findings, end);
    }

    pub(crate) fn record(&mut self, law: &str, mut findings: Findings, end: Result<(), LawAbort>) {
        for why in std::mem::take(&mut findings.omitted) {
            self.skip(law, why);
        }
        match end {
            Ok(()) => {}
            Err(LawAbort::Failed(what)) => findings.report_violation(what),
            Err(LawAbort::Skip(why)) => {
                self.skip(law, why);
                if findings.violations.is_empty() {
                    return;
                }
            }
        }
        if !self.has_checked(law) {
            self.checked.push(law.into());
        }
        let count = findings.violations.len();
        for (index, what) in findings.violations.into_iter().take(SHOWN).enumerate() {
            let more =
                if index + 1 == SHOWN && count > SHOWN { format!("; {} more", count - SHOWN) } else { "".into() };
            self.failures.push(Failure { law: law.into(), what: format!("{what}{more}") });
        }
    }

    pub(crate) fn skip(&mut self, law: &str, why: impl Into<String>) {
        let skipped = Skipped { law: law.into(), why: why.into() };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Adds the report of a part, whose name is put in front of its laws.
    pub(crate) fn include(&mut self, part: &str, other: Self) {
        let name = |law: String| format!("{part}: {law}");
        self.checked.extend(other.checked.into_iter().map(name));
        self.skipped.extend(other.skipped.into_iter().map(|it| Skipped { law: name(it.law), ..it }));
        self.failures.extend(other.failures.into_iter().map(|it| Failure { law: name(it.law), ..it }));
    }
}

/// The number of failures of one law that are shown.
const SHOWN: usize = 3;

/// The number of failures of a report that are shown.
const LINES: usize = 24;

/// One line of counts, then what failed; with `{:#}` all of it, and also what was skipped and what was checked.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (checked, skipped) = (self.checked.len(), self.skipped.len());
        write!(f, "{}: {checked} laws checked, {skipped} skipped, {} failures", self.subject, self.failures.len())?;
        let lines = if f.alternate() { usize::MAX } else { LINES };
        for Failure { law, what } in self.failures.iter().take(lines) {
            write!(f, "\n  failed: {law}: {what}")?;
        }
        if self.failures.len() > lines {
            write!(f, "\n  and {} more", self.failures.len() - lines)?;
        }
        if f.alternate() {
            for Skipped { law, why } in &self.skipped {
                write!(f, "\n  skipped: {law}: {why}")?;
            }
            for law in &self.checked {
                write!(f, "\n  checked: {law}")?;
            }
        }
        Ok(())
    }
}

/// The findings about one law.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    violations: Vec<String>,
    omitted: Vec<String>,
}

impl Findings {
    pub(crate) fn report_violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Adds the findings of another check of this law.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.omitted.extend(other.omitted);
    }

    /// Records a case that could not be checked.
    pub(crate) fn omit(&mut self, why: impl Into<String>) {
        self.omitted.push(why.into());
    }

    pub(crate) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.report_violation(what());
        }
    }
}

/// Why a law was not checked to the end.
#[derive(Debug)]
pub(crate) enum LawAbort {
    /// It does not hold.
    Failed(String),
    /// It can't be checked.
    Skip(String),
}

/// A refusal that the law did not expect.
impl From<DeviceError> for LawAbort {
    fn from(error: DeviceError) -> Self {
        Self::Failed(format!("refused: {}", with_causes(&error)))
    }
}

/// Returns an error and what caused it, in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let (mut line, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
