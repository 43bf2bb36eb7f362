//! A program run under the drop-in until it has planned its graphs: a command in, what was reported and how it ended out.
//!
//! The program is the leader of a process group of its own, so that whatever it starts ends with it.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use steeve_plan::file::JsonError;

use super::report_reader::{ReportError, ReportReader};
use super::static_ggml::has_ggml_bound_inside;
use super::usage_ledger::UsageLedger;
use crate::error::Error;

/// How often the report is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// How often loaded files are looked at, as long as there is no report.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// What a program preloads is there by then.
const LOADED_BY: Duration = Duration::from_secs(1);

/// How long a program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How long a program is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchLimits {
    /// It is ended so long after the last event that belongs to its plans.
    pub(super) settle: Duration,
    /// It is ended after so long in any case.
    pub(super) timeout: Duration,
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramEnd {
    Itself(ExitStatus),
    /// It had planned, and was ended.
    Settled,
    TimedOut,
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// What was seen of a program.
pub(super) struct WatchedProgram {
    pub(super) ledger: UsageLedger,
    pub(super) end: ProgramEnd,
    pub(super) objects: LoadedObjects,
}

/// Files that the program's processes had loaded, as far as that was seen before anything was reported.
#[derive(Default)]
pub(super) struct LoadedObjects {
    files: Vec<PathBuf>,
    /// When they were looked at last, counted from the start.
    age: Duration,
}

/// A folder for the report and what the program prints, which is gone at the end.
pub(super) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    pub(super) fn make() -> Result<Self, Error> {
        /// So many runs with the same process number may have been killed before they could tidy up.
        const TRIES: u32 = 100;
        let builder = private_folder();
        let mut number = 0;
        loop {
            let folder = std::env::temp_dir().join(format!("steeve-estimate-{}-{number}", std::process::id()));
            match builder.create(&folder) {
                Ok(()) => return Ok(Self(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < TRIES => number += 1,
                Err(source) => return Err(Error::ScratchFolder { folder: folder.display().to_string(), source }),
            }
        }
    }

    pub(super) fn report(&self) -> PathBuf {
        self.0.join("report")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Returns the last lines that the program printed.
    pub(super) fn last_lines(&self) -> Vec<String> {
        const LINES: usize = 5;
        const MOST: u64 = 1 << 16;
        let text = fs::File::open(self.log()).and_then(|mut log| {
            let start = log.metadata()?.len().saturating_sub(MOST);
            log.seek(SeekFrom::Start(start))?;
            let mut text = Vec::new();
            log.read_to_end(&mut text).map(|_| text)
        });
        let text = text.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut lines: Vec<String> =
            text.lines().rev().filter(|it| !it.trim().is_empty()).take(LINES).map(str::to_owned).collect();
        lines.reverse();
        lines
    }
}

/// Returns what makes folders that, where users can be told apart, only this one can read: what a program prints is theirs.
fn private_folder() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What is left behind is small, and in the folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program until it ends or has settled. What it prints goes to the workplace; it has no input.
pub(super) fn watch(
    mut command: Command,
    scratch: &ScratchFolder,
    limits: WatchLimits,
) -> Result<WatchedProgram, Error> {
    let log = fs::File::create(scratch.log()).and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = log.map_err(|source| Error::ScratchFolder { folder: scratch.0.display().to_string(), source })?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let program = command.get_program().to_owned();
    let interrupt = Arc::new(AtomicBool::new(false));
    set_on_signals(&interrupt);
    let mut group = ProcessGroup::start(&mut command)
        .map_err(|source| crate::commands::record_command::start_error(&program, source))?;
    let (report, start) = (scratch.report(), Instant::now());
    let mut reader = ReportReader::new(&report);
    let (mut ledger, mut last, mut objects) = (UsageLedger::default(), start, LoadedObjects::default());
    loop {
        // Before the report, which is complete once the program has ended.
        let ended = group.ended();
        for line in reader.read().map_err(report_error)? {
            if ledger.take(line) {
                last = Instant::now();
            }
        }
        let end = match ended {
            Some(status) => ProgramEnd::Itself(status),
            None if interrupt.load(Ordering::Relaxed) => ProgramEnd::Interrupted,
            None if ledger.is_settled() && last.elapsed() >= limits.settle => ProgramEnd::Settled,
            None if start.elapsed() >= limits.timeout => ProgramEnd::TimedOut,
            None => {
                if !ledger.has_plans() && start.elapsed() >= objects.age + LOOK_INTERVAL {
                    objects.look(&group, start.elapsed());
                }
                sleep(INTERVAL);
                continue;
            }
        };
        group.end();
        return Ok(WatchedProgram { ledger, end, objects });
    }
}

/// Lets a signal that ends this program set a flag instead, so that the program it has started ends with it; where no handler can
/// be set it ends alone.
fn set_on_signals(interrupt: &Arc<AtomicBool>) {
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::clone(interrupt));
    }
    #[cfg(not(unix))]
    let _ = interrupt;
}

fn report_error(error: ReportError) -> Error {
    match error {
        ReportError::Read(source) => Error::Report { source },
        ReportError::Version => Error::ReportVersion,
        ReportError::Malformed(source) => Error::ReportLine { source: JsonError(source) },
    }
}

/// A program with all that it starts. Ended when it is dropped.
struct ProcessGroup {
    leader: Child,
    has_ended: bool,
}

impl ProcessGroup {
    fn start(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        Ok(Self { leader: command.spawn()?, has_ended: false })
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.leader.try_wait().ok().flatten()
    }

    /// Asks all of the group to end, gives them time to do so, and ends what is left.
    fn end(&mut self) {
        if self.has_ended {
            return;
        }
        self.has_ended = true;
        self.signal(StopSignal::Ask);
        let start = Instant::now();
        while self.is_running() && start.elapsed() < GRACE {
            sleep(INTERVAL);
        }
        self.signal(StopSignal::Force);
        let _ = self.leader.wait();
    }

    /// Returns whether the leader or any other process of the group runs.
    fn is_running(&mut self) -> bool {
        self.ended().is_none() || !running_processes(self.leader.id()).is_empty()
    }

    /// Sends a signal to the group, if there still is one: the number of a group without processes may be another's by now.
    #[cfg(unix)]
    fn signal(&mut self, urgency: StopSignal) {
        if !self.is_running() {
            return;
        }
        use nix::sys::signal::{Signal, killpg};
        use nix::unistd::Pid;
        let signal = match urgency {
            StopSignal::Ask => Signal::SIGTERM,
            StopSignal::Force => Signal::SIGKILL,
        };
        if let Ok(group) = i32::try_from(self.leader.id()) {
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    #[cfg(not(unix))]
    fn signal(&mut self, _: StopSignal) {
        let _ = self.leader.kill();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Clone, Copy)]
enum StopSignal {
    Ask,
    Force,
}

impl LoadedObjects {
    /// Notes what the processes of a group have loaded, each file once.
    fn look(&mut self, group: &ProcessGroup, age: Duration) {
        self.age = age;
        let mut processes = running_processes(group.leader.id());
        if processes.is_empty() {
            // The system may not say which there are.
            processes.push(group.leader.id());
        }
        for process in processes {
            let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
            // Address, rights, offset, device, number, path; rights with an x are code.
            let code = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.contains('x')));
            for path in code.filter_map(|line| line.find('/').map(|at| Path::new(&line[at..]))) {
                if !self.files.iter().any(|file| file == path) {
                    self.files.push(path.to_owned());
                }
            }
        }
    }

    /// Returns whether the drop-in was seen; `None` if it was not, and the program may just have been too quick.
    pub(super) fn has(&self, library: &Path) -> Option<bool> {
        let found = self.files.iter().any(|file| file == library);
        (found || self.age >= LOADED_BY).then_some(found)
    }

    /// Returns the first file that has ggml's graph allocator in it, out of reach.
    pub(super) fn with_ggml(&self, program: Option<PathBuf>, library: &Path) -> Option<PathBuf> {
        let files = self.files.iter().cloned().chain(program).filter(|file| file != library);
        files.into_iter().find(|file| has_ggml_bound_inside(file))
    }
}

/// Lists the processes of a group that have not ended; empty if the system does not say.
fn running_processes(group: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let ids = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs_in_group = |process: &u32| {
        // "pid (name) state parent group ...", where the name may have anything in it.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split(' ').skip(1);
        let (state, of) = (fields.next(), fields.nth(1).and_then(|group| group.parse::<u32>().ok()));
        // Z and X have ended, and may never be waited for.
        of == Some(group) && !matches!(state, Some("Z" | "X"))
    };
    ids.filter(runs_in_group).collect()
}
