//! Operation sequences on a consumer's position: responses that are late, repeated and wrong.

use curtail_proto::position::{
    FetchFrom, Misfit, Policy, Position, Reset, Spot, Validation, Version, Versions,
};
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
    /// Requests without a response, of any version.
    asked: Vec<FetchFrom>,
    looked_up: Vec<Version>,
    validated: Vec<Validation>,
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Self {
        let policies =
            [Policy::Earliest, Policy::Latest, Policy::Since(input.number()), Policy::None];
        let policy = *input.pick(&policies);
        let mut versions = Versions::default();
        let position = Position::by_policy(policy, &mut versions);
        Self {
            position,
            versions,
            policy,
            asked: Vec::new(),
            looked_up: Vec::new(),
            validated: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let before = self.position.clone();
        let response = self.act(input);
        let (old, new) = (before.version(), self.position.version());
        assert!(new >= old, "a version went back");
        if let Some(Response { is_current, counted }) = response {
            assert!(is_current || !counted, "a response to another question counted");
            let unchanged = format!("{before:?}") == format!("{:?}", self.position);
            assert!(counted || unchanged, "changed by a response that did not count");
        }
        if old == new
            && let (Some(was), Some(is)) = (before.consumed(), self.position.consumed())
        {
            assert!(is.offset >= was.offset, "the consumed offset went back without a jump");
        }
        self.check();
    }

    fn check(&self) {
        let position = &self.position;
        let (lookup, validation, fetch) =
            (position.lookup(), position.validation(), position.fetch_from());
        let busy = [lookup.is_some(), validation.is_some(), fetch.is_some()];
        assert!(busy.iter().filter(|busy| **busy).count() <= 1, "several questions: {busy:?}");
        let Some(fetch) = fetch else { return };
        assert_eq!(fetch.version, position.version());
        assert!(position.is_current(fetch));
        let consumed = position.consumed().expect("fetches from a known offset");
        assert!(fetch.offset >= consumed.offset, "fetches before the consumed offset");
        // An older leader has to refuse the request.
        assert!(fetch.leader_epoch < 0 || fetch.leader_epoch >= fetch.last_fetched_epoch);
    }

    /// Runs one operation, which may be a response.
    fn act(&mut self, input: &mut Input<'_>) -> Option<Response> {
        let Self { position, versions, policy, .. } = self;
        let operation = input.below(17);
        match operation {
            0 => position.seek(input.number(), versions),
            1 => position.seek_to(spot(input), versions),
            2 => {
                let resets = [Reset::Earliest, Reset::Latest, Reset::Timestamp(input.number())];
                position.reset(*input.pick(&resets), versions);
            }
            3 => position.rewind(versions),
            4 => drop(position.on_recreated(*policy, versions)),
            5 => position.on_leader(input.number_i32()),
            6 => position.begin(*policy, versions),
            7 | 8 => self.asked.extend(position.fetch_from()),
            9 => self.looked_up.extend(position.lookup().map(|(version, _)| version)),
            10 => self.validated.extend(position.validation()),
            11 => {
                let version = position.version();
                let counted = position.on_consumed(version, spot(input));
                return Some(Response { is_current: true, counted });
            }
            12 if !self.looked_up.is_empty() => {
                let version = *input.pick(&self.looked_up);
                let is_current = version == position.version();
                let counted = position.on_lookup(version, input.number());
                return Some(Response { is_current, counted });
            }
            13 if !self.validated.is_empty() => return Some(self.validate(input)),
            14..=16 if !self.asked.is_empty() => return Some(self.answer(operation, input)),
            _ => {}
        }
        None
    }

    fn validate(&mut self, input: &mut Input<'_>) -> Response {
        let Self { position, versions, policy, .. } = self;
        let asked = *input.pick(&self.validated);
        let is_current = position.validation() == Some(asked);
        let counted = if input.below(8) == 0 {
            position.on_unsupported(asked)
        } else {
            match position.on_validated(asked, end(input), *policy, versions) {
                Ok(()) => true,
                Err(misfit) => counts(misfit),
            }
        };
        Response { is_current, counted }
    }

    fn answer(&mut self, operation: usize, input: &mut Input<'_>) -> Response {
        let Self { position, versions, policy, .. } = self;
        let asked = *input.pick(&self.asked);
        let is_current = position.is_current(asked);
        let counted = match operation {
            14 => {
                let offset = asked.offset.wrapping_add(input.number());
                position.on_fetched(asked, Spot { offset, epoch: input.number_i32() })
            }
            15 => counts(position.on_out_of_range(asked, *policy, versions)),
            _ => counts(position.on_diverging(asked, end(input), *policy, versions)),
        };
        Response { is_current, counted }
    }
}

struct Response {
    /// Whether it is the response to the position's current request.
    is_current: bool,
    /// Whether it counted.
    counted: bool,
}

fn counts(misfit: Misfit) -> bool {
    !matches!(misfit, Misfit::Stale | Misfit::NotYet)
}

fn spot(input: &mut Input<'_>) -> Spot {
    Spot { offset: input.number(), epoch: input.number_i32() }
}

fn end(input: &mut Input<'_>) -> EpochEndOffset {
    EpochEndOffset { epoch: input.number_i32(), end_offset: input.number() }
}

fn seeds() -> Vec<Vec<u8>> {
    let fetch_and_consume = [5, 3, 9, 12, 0, 9, 7, 14, 0, 5, 3, 11, 12, 3, 7, 14, 0, 3, 3];
    let mut seeds: Vec<Vec<u8>> =
        (0..4).map(|policy| [&[3, policy][..], &fetch_and_consume].concat()).collect();
    let validate = [1, 9, 2, 5, 3, 10, 13, 0, 1, 2, 20, 7, 14, 0, 4, 3];
    let truncated = [1, 9, 2, 5, 3, 10, 13, 0, 1, 2, 4, 7, 15, 0, 3, 10, 7, 16, 0, 1, 2];
    for policy in [0, 3] {
        seeds.push([&[3, policy][..], &validate].concat());
        seeds.push([&[3, policy][..], &truncated].concat());
    }
    seeds
}
