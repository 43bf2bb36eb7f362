//! What memories may take at most (`--capacity [MEMORY=]SIZE`): read and asked in the same way by every command.

use std::collections::BTreeSet;

use steeve_plan::{Bytes, Clipped};

use crate::byte_size::parse_bytes;
use crate::error::Error;

/// The most bytes that one memory may take, or each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// The memory; none means each memory that is not named.
    memory: Option<String>,
    bytes: Bytes,
}

/// Reads a size, or the name of a memory and a size.
pub(crate) fn parse_capacity(text: &str) -> Result<Capacity, String> {
    let size = |text: &str| parse_bytes(text).map_err(|error| error.to_string());
    // A name may hold anything, a size holds no equals sign.
    match text.rsplit_once('=') {
        None => Ok(Capacity { memory: None, bytes: size(text)? }),
        Some((memory, _)) if memory.trim().is_empty() => Err(format!(
            "not a capacity: expected SIZE or MEMORY=SIZE, such as 8GiB or CUDA0=8GiB, got {:?}",
            Clipped(text)
        )),
        Some((memory, bytes)) => Ok(Capacity { memory: Some(memory.to_owned()), bytes: size(bytes)? }),
    }
}

/// All capacities of a command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacities<'a>(&'a [Capacity]);

impl<'a> Capacities<'a> {
    /// Takes the capacities as they were given.
    ///
    /// # Errors
    /// If two are for the same memory, or two for each memory: none of them is more right than the other.
    pub(crate) fn new(given: &'a [Capacity]) -> Result<Self, Error> {
        let mut seen = BTreeSet::new();
        match given.iter().find(|it| !seen.insert(&it.memory)) {
            None => Ok(Self(given)),
            Some(Capacity { memory: Some(memory), .. }) => {
                Err(Error::Usage(format!("--capacity {}: given twice", Clipped(memory))))
            }
            Some(_) => {
                let why = "--capacity: given twice: expected a memory for each, as in CUDA0=8GiB";
                Err(Error::Usage(why.to_owned()))
            }
        }
    }

    /// Returns the capacity of a memory: the one that is given for it, or else the one for each.
    pub(crate) fn of(self, memory: &str) -> Option<Bytes> {
        let given = |name: Option<&str>| self.0.iter().find(|it| it.memory.as_deref() == name).map(|it| it.bytes);
        given(Some(memory)).or_else(|| given(None))
    }

    /// Refuses a capacity for a memory that is not among these, for its name may be mistyped.
    pub(crate) fn check_names<'b>(self, memories: impl IntoIterator<Item = &'b str>) -> Result<(), Error> {
        let memories: Vec<&str> = memories.into_iter().fold(Vec::new(), |mut all, name| {
            if !all.contains(&name) {
                all.push(name);
            }
            all
        });
        let mut named = self.0.iter().filter_map(|it| it.memory.as_deref());
        match named.find(|name| !memories.contains(name)) {
            None => Ok(()),
            Some(memory) => {
                let [memory, memories] = [memory, &memories.join(", ")].map(|text| Clipped(text).to_string());
                Err(Error::NoSuchMemory { memory, memories })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Capacities, Capacity, parse_capacity};
    use steeve_plan::Bytes;

    fn read(texts: &[&str]) -> Vec<Capacity> {
        texts.iter().filter_map(|text| parse_capacity(text).ok()).collect()
    }

    #[test]
    fn a_capacity_is_for_one_memory_or_for_each() {
        let given = read(&["8K", "CUDA0=2K", "a=b=1"]);
        let of = |memory: &str| Capacities::new(&given).ok().and_then(|it| it.of(memory));
        assert_eq!((of("CPU"), of("CUDA0"), of("a=b")), (Some(Bytes(8192)), Some(Bytes(2048)), Some(Bytes(1))));
        assert_eq!(Capacities::default().of("CPU"), None);
        assert!(["", "=8G", " =8G", "CUDA0=", "CUDA0=x", "8X"].iter().all(|text| parse_capacity(text).is_err()));
    }

    #[test]
    fn of_two_capacities_for_the_same_none_is_taken_silently() {
        for twice in [["1K", "2K"], ["CPU=1K", "CPU=1K"]] {
            assert!(Capacities::new(&read(&twice)).is_err(), "{twice:?}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_those_that_are() {
        let given = read(&["1K", "CUDA1=1K"]);
        let capacities = Capacities::new(&given).unwrap();
        assert!(capacities.check_names(["CPU", "CUDA1"]).is_ok());
        let said = capacities.check_names(["CPU", "CUDA0", "CPU"]).err().map(|error| error.to_string());
        assert_eq!(said.as_deref(), Some("--capacity CUDA1: no such memory: expected one of CPU, CUDA0"));
    }
}
