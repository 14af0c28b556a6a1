//! A backlog: consumers pause until this many records have been written, then read them.

/// State of the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Building,
    Draining,
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backlog {
    /// Records to write before consumers resume.
    most: u64,
    /// A lag of this many records counts as drained.
    rest: u64,
    state: State,
}

/// Records that are always in flight.
const UNDER_WAY: u64 = 1000;

impl Backlog {
    /// A backlog of this many records. It counts as drained once a share of `ratio` (0 to 1) has been read.
    pub(super) fn new(records: u64, ratio: f64) -> Self {
        let rest = (((1.0 - ratio) * records as f64) as u64).max(UNDER_WAY);
        Self { most: records, rest, state: State::Building }
    }

    /// Whether consumers must pause.
    pub(super) fn is_building(&self) -> bool {
        self.state == State::Building
    }

    /// Updates the state by the consumers' lag; returns `true` when the backlog has just been drained.
    pub(super) fn tell(&mut self, behind: u64) -> bool {
        match self.state {
            State::Building if behind >= self.most => self.state = State::Draining,
            State::Draining if behind <= self.rest => {
                self.state = State::Drained;
                return true;
            }
            _ => {}
        }
        false
    }

    pub(super) fn is_drained(&self) -> bool {
        self.state == State::Drained
    }
}
