//! A backlog: records are kept from consumers until there are so many, and then read off.

/// How far that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Building,
    Draining,
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backlog {
    /// Records to be there before consumers go on.
    most: u64,
    /// So many records are as good as none.
    rest: u64,
    state: State,
}

/// Records that are always under way.
const UNDER_WAY: u64 = 1000;

impl Backlog {
    /// Of so many records, of which a part, of 1, has to be read off before it counts as drained.
    pub(super) fn new(records: u64, ratio: f64) -> Self {
        let rest = (((1.0 - ratio) * records as f64) as u64).max(UNDER_WAY);
        Self { most: records, rest, state: State::Building }
    }

    /// Whether consumers are to wait.
    pub(super) fn is_building(&self) -> bool {
        self.state == State::Building
    }

    /// Takes note of how many records consumers are behind; true when it has just been drained.
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
