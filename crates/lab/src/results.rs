//! The page of results: kept runs, claims about them, and the texts made from both.
//!
//! A run is the JSON of `curtail lab run --json` in a directory `CLUSTER/EXPERIMENT`. Everything else is computed from the
//! kept runs: the page, a report and a chart per experiment, the README's picture and its table. The same runs give the
//! same bytes (decision 0057).

mod chart;
mod claims;
mod date;
mod kills;
mod number;
mod page;
mod readme;
mod report;
mod rows;
mod store;
#[cfg(test)]
mod tests;

pub use self::store::Results;
use crate::experiments::ClusterKind;

/// Why results cannot be read or made, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(String);

impl Invalid {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A cluster with a section on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cluster {
    Apache,
    Embedded,
    Sim,
}

impl Cluster {
    const ALL: [Self; 3] = [Self::Apache, Self::Embedded, Self::Sim];

    /// The name in reports, which is also that of the directory.
    fn name(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Embedded => "embedded",
            Self::Sim => "sim",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Apache => "Apache Kafka",
            Self::Embedded => "Embedded cluster",
            Self::Sim => "Virtual time",
        }
    }

    fn kind(self) -> ClusterKind {
        match self {
            Self::Apache => ClusterKind::Apache,
            Self::Embedded => ClusterKind::Embedded,
            Self::Sim => ClusterKind::Sim,
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cluster| cluster.name() == name)
    }
}
