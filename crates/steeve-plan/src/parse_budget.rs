//! Parses search budgets: `500ms`, `2s`, `20000nodes`.

use std::borrow::ToOwned;
use std::str::FromStr;
use std::string::String;
use std::time::Duration;

use crate::{Budget, Clipped};

/// Parses a time or a number of nodes. Fails for a bare number: seconds and nodes are too far apart to guess.
///
/// ```
/// use steeve_plan::Budget;
/// assert_eq!("20000nodes".parse(), Ok(Budget::Nodes(20_000)));
/// assert_eq!("500ms".parse(), Ok(Budget::Time(std::time::Duration::from_millis(500))));
/// assert!("500".parse::<Budget>().is_err());
/// ```
impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let text = text.trim();
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let no_budget = || BudgetError::NotABudget { text: text.to_owned() };
        let seconds = match unit.trim().to_ascii_lowercase().as_str() {
            "node" | "nodes" | "n" => return number.parse().map(Self::Nodes).map_err(|_| no_budget()),
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(no_budget()),
        };
        let number: f64 = number.parse().map_err(|_| no_budget())?;
        let time = Duration::try_from_secs_f64(number * seconds);
        time.map(Self::Time).map_err(|_| BudgetError::TooLong { text: text.to_owned() })
    }
}

/// Why a text is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// Neither a time nor a number of nodes.
    #[error(
        "budget: neither a time nor a number of nodes: expected such as 500ms, 2s, 5min or 20000nodes, got {:?}",
        Clipped(text)
    )]
    NotABudget {
        /// What was given.
        text: String,
    },
    /// A time beyond all clocks.
    #[error("budget: too long for any clock: {:?}", Clipped(text))]
    TooLong {
        /// What was given.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Budget;

    #[test]
    fn budgets_are_times_or_nodes() {
        let time = |seconds| Ok::<_, super::BudgetError>(Budget::Time(Duration::from_secs_f64(seconds)));
        assert_eq!("500ms".parse(), time(0.5));
        assert_eq!("2s".parse(), time(2.0));
        assert_eq!("0.25 s".parse(), time(0.25));
        assert_eq!("5min".parse(), time(300.0));
        assert_eq!("20000nodes".parse(), Ok(Budget::Nodes(20_000)));
        assert_eq!("1 node".parse(), Ok(Budget::Nodes(1)));
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        let huge = "9".repeat(40) + "s";
        for text in ["", "500", "s", "-1s", "1.5nodes", "1.2.3s", "ten s", "99999999999999999999nodes", huge.as_str()] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
