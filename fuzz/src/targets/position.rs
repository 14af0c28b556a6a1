//! Operation sequences on a consumer's position: answers late, repeated and wrong.

use curtail_proto::position::{FetchFrom, Misfit, Policy, Position, Reset, Version, Versions};
use curtail_wire::fetch::EpochEndOffset;

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "position", run, seeds, cases: 20_000 };

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut bench = Bench::new(&mut input);
    while !input.is_empty() {
        bench.step(&mut input);
    }
}

struct Bench {
    position: Position,
    versions: Versions,
    policy: Policy,
    /// Fetches and look-ups without an answer, of any version.
    asked: Vec<FetchFrom>,
    looked_up: Vec<Version>,
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let policies =
            [Policy::Earliest, Policy::Latest, Policy::Since(input.number()), Policy::None];
        let policy = *input.pick(&policies);
        let mut versions = Versions::default();
        let position = Position::by_policy(policy, &mut versions);
        Self { position, versions, policy, asked: Vec::new(), looked_up: Vec::new() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let before = self.position.clone();
        let (is_answer, counted) = self.act(input);
        let (old, new) = (before.version(), self.position.version());
        assert!(new >= old, "a version went back");
        let is_stale = is_answer.is_some_and(|version| version != old);
        assert!(!(is_stale && counted), "an answer for another version counted");
        if is_answer.is_some() && !counted {
            assert_eq!(
                format!("{before:?}"),
                format!("{:?}", self.position),
                "changed by what did not count"
            );
        }
        if old == new
            && let (Some(was), Some(is)) = (before.consumed(), self.position.consumed())
        {
            assert!(is >= was, "the consumed offset went back without a jump");
        }
        if let (Some(fetch), Some(consumed)) =
            (self.position.fetch_from(), self.position.consumed())
        {
            assert!(fetch.offset >= consumed, "fetches behind what was consumed");
            assert_eq!(fetch.version, new);
        }
        assert!(
            self.position.lookup().is_none() || self.position.fetch_from().is_none(),
            "looked up and fetched at once"
        );
    }

    /// Does one operation; for an answer, the version that it was for and whether it counted.
    fn act(&mut self, input: &mut Input<'_>) -> (Option<Version>, bool) {
        let Self { position, versions, policy, .. } = self;
        let operation = input.below(12);
        match operation {
            0 => position.seek(input.number(), versions),
            1 => {
                let resets = [Reset::Earliest, Reset::Latest, Reset::Timestamp(input.number())];
                position.reset(*input.pick(&resets), versions);
            }
            2 => position.rewind(versions),
            3 => drop(position.on_recreated(*policy, versions)),
            4 => self.asked.extend(position.fetch_from()),
            5 => self.looked_up.extend(position.lookup().map(|(version, _)| version)),
            6 => {
                let version = position.version();
                return (Some(version), position.on_consumed(version, input.number()));
            }
            7 if !self.looked_up.is_empty() => {
                let version = *input.pick(&self.looked_up);
                return (Some(version), position.on_lookup(version, input.number()));
            }
            8..=11 if !self.asked.is_empty() => {
                let asked = *input.pick(&self.asked);
                return (Some(asked.version), self.answer(operation, asked, input));
            }
            _ => {}
        }
        (None, false)
    }

    fn answer(&mut self, operation: usize, asked: FetchFrom, input: &mut Input<'_>) -> bool {
        let Self { position, versions, policy, .. } = self;
        let FetchFrom { version, offset, .. } = asked;
        let misfit = match operation {
            8 | 9 => {
                let next = offset.wrapping_add(input.number());
                return position.on_fetched(version, offset, next, input.number_i32());
            }
            10 => position.on_out_of_range(version, offset, *policy, versions),
            _ => {
                let end = EpochEndOffset { epoch: input.number_i32(), end_offset: input.number() };
                position.on_diverging(version, offset, end, *policy, versions)
            }
        };
        !matches!(misfit, Misfit::Stale | Misfit::NotYet)
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let fetch_and_consume = [5, 7, 0, 9, 4, 8, 0, 5, 0, 6, 12, 4, 8, 0, 3, 0];
    let mut seeds: Vec<Vec<u8>> =
        (0..4).map(|policy| [&[3, policy][..], &fetch_and_consume].concat()).collect();
    seeds
        .push(vec![3, 0, 5, 7, 0, 9, 4, 10, 0, 5, 7, 0, 9, 4, 0, 3, 8, 0, 5, 0, 11, 0, 1, 2, 2, 3]);
    seeds
}
