//! Operation sequences on a fetch session, against a broker as KIP-227 describes it and against a hostile one.

use std::collections::BTreeMap;

use curtail_proto::fetch_session::{
    FetchSession, Naming, Outcome, Params, SessionPartition, SessionRequest,
};
use curtail_wire::{ErrorCode, Uuid};

use crate::{Input, Target};

pub(super) const TARGET: Target = Target { name: "fetch_session", run, seeds, cases: 10_000 };

/// Partitions by topic (its id, or its name if the session has no ids) and index.
type Held = BTreeMap<(String, Uuid, i32), Params>;

/// The broker's side. It adds and changes partitions first, then removes some.
#[derive(Default)]
struct Broker {
    session: Option<(i32, i32, Held)>,
    last_id: i32,
    is_full: bool,
}

struct Answer {
    error: ErrorCode,
    session_id: i32,
    results: usize,
    fetched: Option<Held>,
}

impl Broker {
    fn serve(&mut self, request: &SessionRequest) -> Answer {
        let named = named(request);
        if request.session_epoch == 0 {
            if self.session.as_ref().is_some_and(|(id, ..)| *id == request.session_id) {
                self.session = None;
            }
            let results = named.len();
            let session_id = if self.is_full || self.session.is_some() {
                0
            } else {
                self.last_id += 1;
                self.session = Some((self.last_id, 1, named.clone()));
                self.last_id
            };
            return Answer { error: ErrorCode::NONE, session_id, results, fetched: Some(named) };
        }
        let refuse = |error| Answer { error, session_id: 0, results: 0, fetched: None };
        match &mut self.session {
            Some((id, epoch, held)) if *id == request.session_id => {
                if *epoch != request.session_epoch {
                    return refuse(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
                }
                *epoch = epoch.checked_add(1).unwrap_or(1);
                for (key, params) in named {
                    let before = held.insert(key, params);
                    assert_ne!(before, Some(params), "named without a change");
                }
                for topic in &request.forgotten {
                    for index in &topic.partitions {
                        let key = (topic.name.clone(), topic.topic_id, *index);
                        assert!(
                            held.remove(&key).is_some(),
                            "forgot what the session does not hold"
                        );
                    }
                }
                let fetched = Some(held.clone());
                Answer { error: ErrorCode::NONE, session_id: *id, results: 0, fetched }
            }
            _ => refuse(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
        }
    }
}

fn named(request: &SessionRequest) -> Held {
    let topics = request.topics.iter();
    let partitions = topics.flat_map(|topic| topic.partitions.iter().map(move |p| (topic, p)));
    let mut named = Held::new();
    for (topic, partition) in partitions {
        let params = Params {
            fetch_offset: partition.fetch_offset,
            current_leader_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
            max_bytes: partition.max_bytes,
        };
        let before = named.insert((topic.name.clone(), topic.topic_id, partition.index), params);
        assert_eq!(before, None, "named twice");
    }
    named
}

struct Bench {
    session: FetchSession,
    broker: Broker,
    /// By the key that distinguishes partitions: the topic's id as the reader named it last.
    wanted: BTreeMap<SessionPartition, (Uuid, Params)>,
}

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let naming = if input.flag() { Naming::Ids } else { Naming::Names };
    let mut bench = Bench {
        session: FetchSession::new(naming),
        broker: Broker::default(),
        wanted: BTreeMap::new(),
    };
    while !input.is_empty() {
        bench.step(&mut input);
        assert_eq!(bench.session.len(), bench.wanted.len());
    }
    // After any events, an honest broker is read from again.
    bench.broker = Broker { last_id: bench.broker.last_id, ..Broker::default() };
    for _ in 0..2 {
        bench.exchange();
    }
    assert!(bench.session.is_open() && !bench.session.has_changes());
}

impl Bench {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(13) {
            0..=2 => {
                let (key, params) = (key(input), params(input.below(4)));
                self.session.want(key.clone(), params);
                self.wanted.insert(normal(&key, self.session.naming()), (key.topic_id, params));
            }
            3 => {
                let key = key(input);
                self.session.unwant(&key);
                self.wanted.remove(&normal(&key, self.session.naming()));
            }
            4..=6 => self.exchange(),
            7 => {
                let request = self.session.next_request();
                if input.flag() {
                    self.broker.serve(&request);
                }
                self.session.on_lost();
            }
            8 => {
                let request = self.session.next_request();
                if input.flag() {
                    self.broker.serve(&request);
                }
                self.session.on_abandoned();
            }
            9 => self.broker.session = None,
            10 => self.broker.is_full = input.flag(),
            11 => {
                let naming = if input.flag() { Naming::Ids } else { Naming::Names };
                if naming != self.session.naming() {
                    self.session.set_naming(naming);
                    // By name, two topics of one name are one.
                    let wanted = std::mem::take(&mut self.wanted).into_iter();
                    let renamed = wanted.map(|(key, (topic_id, params))| {
                        let key = SessionPartition { topic_id, ..key };
                        (normal(&key, naming), (topic_id, params))
                    });
                    self.wanted = renamed.collect();
                }
            }
            _ => self.lie(input),
        }
    }

    /// One exchange: the broker fetches what the reader wants. A lost session costs one more request.
    fn exchange(&mut self) {
        for attempt in 0..3 {
            let request = self.session.next_request();
            let answer = self.broker.serve(&request);
            let outcome = self.session.on_answer(answer.error, answer.session_id, answer.results);
            match outcome {
                Outcome::Results => {
                    let wanted = self
                        .wanted
                        .iter()
                        .map(|(key, (_, params))| (held(key, &self.session), *params));
                    assert_eq!(answer.fetched, Some(wanted.collect()), "fetches what is wanted");
                    return;
                }
                Outcome::StartedOver => assert!(attempt < 2, "starting over must work at once"),
                Outcome::Refused(error) => panic!("refused: {error}"),
            }
        }
    }

    /// An arbitrary response.
    fn lie(&mut self, input: &mut Input<'_>) {
        let request = self.session.next_request();
        let errors = [0, 70, 71, 106, 100, -1, 3, 56].map(ErrorCode);
        let (error, session_id) = (*input.pick(&errors), input.number_i32());
        let outcome = self.session.on_answer(error, session_id, input.below(8));
        assert_eq!(outcome == Outcome::Results, error == ErrorCode::NONE);
        if outcome == Outcome::Results && request.session_epoch != 0 {
            // The broker's session moves on as well, as if it had served the request.
            self.broker.serve(&request);
        } else {
            // The broker has no session that the response could have named.
            self.broker.session = None;
        }
    }
}

fn key(input: &mut Input<'_>) -> SessionPartition {
    let (topic, id) = (input.below(3) as u8, input.below(2) as u8);
    SessionPartition {
        topic: format!("t{topic}").into(),
        topic_id: Uuid([1 + topic * 2 + id; 16]),
        partition: input.below(4) as i32,
    }
}

/// If requests name topics, ids do not distinguish partitions.
fn normal(key: &SessionPartition, naming: Naming) -> SessionPartition {
    match naming {
        Naming::Ids => key.clone(),
        Naming::Names => SessionPartition { topic_id: Uuid::ZERO, ..key.clone() },
    }
}

fn held(key: &SessionPartition, session: &FetchSession) -> (String, Uuid, i32) {
    match session.naming() {
        Naming::Ids => (String::new(), key.topic_id, key.partition),
        Naming::Names => (key.topic.to_string(), Uuid::ZERO, key.partition),
    }
}

fn params(offset: usize) -> Params {
    Params {
        fetch_offset: offset as i64,
        current_leader_epoch: 1,
        last_fetched_epoch: -1,
        max_bytes: 100,
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let want = |partition: u8, offset: u8| [0, 0, 0, partition, offset];
    let mut seeds = Vec::new();
    for naming in 0..2 {
        let opened = [&[naming][..], &want(0, 0), &want(1, 2), &[4], &want(1, 3), &[3, 0, 0, 0, 4]];
        let opened = opened.concat();
        for end in [
            &[7, 1, 4][..],
            &[8, 1, 4, 4],
            &[9, 4],
            &[10, 1, 9, 4, 4],
            &[12, 1, 5, 2, 4],
            &[11, 0, 4],
        ] {
            seeds.push([&opened[..], end].concat());
        }
    }
    seeds
}
