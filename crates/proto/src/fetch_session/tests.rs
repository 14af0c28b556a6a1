use proptest::prelude::*;

use super::*;

fn key(topic: u8, id: u8, partition: i32) -> SessionPartition {
    SessionPartition { topic: format!("t{topic}").into(), topic_id: Uuid([id; 16]), partition }
}

fn at(fetch_offset: i64) -> Params {
    Params { fetch_offset, current_leader_epoch: 1, last_fetched_epoch: -1, max_bytes: 100 }
}

fn named(request: &SessionRequest) -> Vec<(Uuid, i32, i64)> {
    let of = |t: &FetchTopic| {
        let id = t.topic_id;
        t.partitions.iter().map(move |p| (id, p.index, p.fetch_offset)).collect::<Vec<_>>()
    };
    request.topics.iter().flat_map(of).collect()
}

#[test]
fn first_request_names_everything_and_later_ones_only_changes() {
    let mut session = FetchSession::new(Naming::Ids);
    let id = Uuid([1; 16]);
    for partition in 0..3 {
        session.want(key(1, 1, partition), at(0));
    }
    let request = session.next_request();
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert_eq!(named(&request), [(id, 0, 0), (id, 1, 0), (id, 2, 0)]);
    assert_eq!(request.topics.len(), 1, "one topic entry for its partitions");
    assert_eq!(session.on_answer(ErrorCode::NONE, 7, 3), Outcome::Results);

    session.want(key(1, 1, 1), at(5));
    session.unwant(&key(1, 1, 2));
    let request = session.next_request();
    assert_eq!((request.session_id, request.session_epoch), (7, 1));
    assert_eq!(named(&request), [(id, 1, 5)]);
    assert_eq!(request.forgotten.len(), 1);
    assert_eq!(request.forgotten[0].partitions, [2]);
    session.on_answer(ErrorCode::NONE, 7, 0);

    let request = session.next_request();
    assert_eq!(request.session_epoch, 2);
    assert!(request.topics.is_empty() && request.forgotten.is_empty());
}

#[test]
fn a_change_undone_before_a_request_is_no_change() {
    let mut session = FetchSession::new(Naming::Ids);
    session.want(key(1, 1, 0), at(0));
    session.next_request();
    session.on_answer(ErrorCode::NONE, 7, 1);
    session.want(key(1, 1, 0), at(9));
    session.unwant(&key(1, 1, 0));
    assert!(session.has_changes());
    session.want(key(1, 1, 0), at(0));
    assert!(!session.has_changes());
}

#[test]
fn epochs_wrap_to_one() {
    let mut session = FetchSession::new(Naming::Ids);
    session.state = State::Open { id: 3, epoch: i32::MAX };
    assert_eq!(session.next_request().session_epoch, i32::MAX);
    session.on_answer(ErrorCode::NONE, 3, 0);
    assert_eq!(session.next_request().session_epoch, 1);
}

#[test]
fn errors_start_the_session_over() {
    // The error, and the id that the next opening request carries to free the slot.
    let cases = [
        (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, Outcome::StartedOver, 0),
        (ErrorCode::INVALID_FETCH_SESSION_EPOCH, Outcome::StartedOver, 7),
        (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, Outcome::StartedOver, 7),
        (ErrorCode::UNKNOWN_TOPIC_ID, Outcome::Refused(ErrorCode::UNKNOWN_TOPIC_ID), 7),
    ];
    for (error, outcome, old_id) in cases {
        let mut session = FetchSession::new(Naming::Ids);
        session.want(key(1, 1, 0), at(0));
        session.next_request();
        session.on_answer(ErrorCode::NONE, 7, 1);
        session.next_request();
        assert_eq!(session.on_answer(error, 0, 0), outcome, "{error}");
        let request = session.next_request();
        assert_eq!((request.session_id, request.session_epoch), (old_id, 0), "{error}");
        assert_eq!(named(&request).len(), 1, "{error}");
    }
}

#[test]
fn an_opening_request_that_fails_is_not_repeated_at_once() {
    for error in [
        ErrorCode::INVALID_FETCH_SESSION_EPOCH,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
    ] {
        let mut session = FetchSession::new(Naming::Ids);
        session.want(key(1, 1, 0), at(0));
        session.next_request();
        assert_eq!(session.on_answer(error, 0, 0), Outcome::Refused(error));
    }
}

#[test]
fn without_a_session_each_request_begins_with_the_next_partition() {
    let mut session = FetchSession::new(Naming::Ids);
    let keys = [key(1, 1, 0), key(1, 1, 1), key(2, 2, 0)];
    for key in &keys {
        session.want(key.clone(), at(0));
    }
    let mut first = BTreeSet::new();
    for _ in 0..4 {
        let named = named(&session.next_request());
        assert_eq!(named.len(), 3);
        first.insert((named[0].0.0, named[0].1));
        session.on_answer(ErrorCode::NONE, 0, 3);
    }
    assert_eq!(first.len(), 3);
}

#[test]
fn a_session_that_misses_partitions_is_not_kept() {
    let mut session = FetchSession::new(Naming::Ids);
    session.want(key(1, 1, 0), at(0));
    session.want(key(1, 1, 1), at(0));
    session.next_request();
    assert_eq!(session.on_answer(ErrorCode::NONE, 7, 1), Outcome::Results);
    let request = session.next_request();
    assert_eq!((request.session_id, request.session_epoch), (7, 0));
    assert_eq!(named(&request).len(), 2);
}

#[test]
fn an_abandoned_request_keeps_the_session_if_it_arrived() {
    let mut session = FetchSession::new(Naming::Ids);
    assert!(session.is_opening());
    session.want(key(1, 1, 0), at(0));
    session.next_request();
    session.on_answer(ErrorCode::NONE, 7, 1);
    assert!(!session.is_opening());
    session.next_request();
    session.want(key(1, 1, 1), at(4));
    session.on_abandoned();
    let request = session.next_request();
    assert_eq!((request.session_id, request.session_epoch), (7, 2));
    assert_eq!(named(&request), [(Uuid([1; 16]), 1, 4)]);
}

#[test]
fn a_broker_without_a_slot_is_known() {
    let mut session = FetchSession::new(Naming::Ids);
    session.want(key(1, 1, 0), at(0));
    session.next_request();
    session.on_answer(ErrorCode::NONE, 0, 1);
    assert!(!session.is_opening(), "it may wait for records like any other request");
    assert_eq!(named(&session.next_request()).len(), 1);
}

#[test]
fn only_a_session_is_closed() {
    let mut session = FetchSession::new(Naming::Ids);
    assert_eq!(session.close_request(), None);
    session.next_request();
    session.on_answer(ErrorCode::NONE, 7, 0);
    let request = session.close_request().expect("a session is open");
    assert_eq!((request.session_id, request.session_epoch), (7, -1));
}

#[test]
fn a_recreated_topic_is_replaced_by_id_and_renewed_by_name() {
    for naming in [Naming::Ids, Naming::Names] {
        let mut session = FetchSession::new(naming);
        session.want(key(1, 1, 0), at(8));
        session.next_request();
        session.on_answer(ErrorCode::NONE, 7, 1);
        session.unwant(&key(1, 1, 0));
        session.want(key(1, 2, 0), at(0));
        let request = session.next_request();
        assert_eq!(named(&request).len(), 1);
        // By name, the broker would add the partition and then forget it.
        assert_eq!(request.forgotten.len(), usize::from(naming == Naming::Ids));
        assert_eq!(request.topics[0].name.is_empty(), naming == Naming::Ids);
    }
}

#[test]
fn another_naming_restarts_the_session() {
    let mut session = FetchSession::new(Naming::Ids);
    session.want(key(1, 1, 0), at(3));
    session.next_request();
    session.on_answer(ErrorCode::NONE, 7, 1);
    session.set_naming(Naming::Names);
    let request = session.next_request();
    assert_eq!((request.session_id, request.session_epoch), (7, 0));
    assert_eq!(request.topics[0].name, "t1");
    assert_eq!(named(&request), [(Uuid::ZERO, 0, 3)]);
}

/// A broker that is upgraded, or a topic whose id becomes known, changes the naming of a session that names topics.
#[test]
fn naming_by_ids_after_names_uses_the_ids_of_the_topics() {
    let mut session = FetchSession::new(Naming::Names);
    session.want(key(1, 1, 0), at(3));
    session.want(key(2, 2, 0), at(4));
    session.next_request();
    session.on_answer(ErrorCode::NONE, 7, 2);
    session.set_naming(Naming::Ids);
    let request = session.next_request();
    assert_eq!(named(&request), [(Uuid([1; 16]), 0, 3), (Uuid([2; 16]), 0, 4)]);
    session.unwant(&key(1, 1, 0));
    assert_eq!(session.len(), 1);
}

/// A broker as KIP-227 describes it: additions and changes first, then removals.
#[derive(Default)]
struct Broker {
    session: Option<(i32, i32, Held)>,
    next_id: i32,
    full: bool,
}

type Held = BTreeMap<(Uuid, i32), Params>;

impl Broker {
    /// Returns the error, the session id, the number of results, and the fetched partitions.
    fn serve(&mut self, request: &SessionRequest) -> (ErrorCode, i32, usize, Option<Held>) {
        let named: Held = request
            .topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(move |p| (t.topic_id, p)))
            .map(|(id, p)| {
                let params = Params {
                    fetch_offset: p.fetch_offset,
                    current_leader_epoch: p.current_leader_epoch,
                    last_fetched_epoch: p.last_fetched_epoch,
                    max_bytes: p.max_bytes,
                };
                ((id, p.index), params)
            })
            .collect();
        if request.session_epoch == OPENING {
            if self.session.as_ref().is_some_and(|(id, ..)| *id == request.session_id) {
                self.session = None;
            }
            if self.full || self.session.is_some() {
                return (ErrorCode::NONE, 0, named.len(), Some(named));
            }
            self.next_id += 1;
            self.session = Some((self.next_id, 1, named.clone()));
            return (ErrorCode::NONE, self.next_id, named.len(), Some(named));
        }
        let Some((id, epoch, held)) = &mut self.session else {
            return (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0, 0, None);
        };
        if *id != request.session_id {
            return (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0, 0, None);
        }
        if *epoch != request.session_epoch {
            return (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 0, 0, None);
        }
        *epoch += 1;
        for (key, params) in &named {
            assert_ne!(held.get(key), Some(params), "named without a change");
        }
        held.extend(named);
        for topic in &request.forgotten {
            for partition in &topic.partitions {
                let gone = held.remove(&(topic.topic_id, *partition));
                assert!(gone.is_some(), "forgot what the session does not hold");
            }
        }
        (ErrorCode::NONE, *id, 0, Some(held.clone()))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Want(u8, u8, i32, i64),
    Unwant(u8, u8, i32),
    Exchange,
    /// The request arrives, its response does not.
    LoseAnswer,
    /// The request does not arrive.
    LoseRequest,
    /// The reader does not wait for the response, and the request may have arrived.
    Abandon(bool),
    Evict,
    /// The broker's epoch of the session differs from the reader's by more than lost requests can explain.
    Disturb,
    NoSlot(bool),
    Error,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..3, 0u8..2, 0..4, 0i64..4).prop_map(|(t, i, p, o)| Step::Want(t, t * 2 + i, p, o)),
        3 => (0u8..3, 0u8..2, 0..4).prop_map(|(t, i, p)| Step::Unwant(t, t * 2 + i, p)),
        6 => Just(Step::Exchange),
        1 => Just(Step::LoseAnswer),
        1 => Just(Step::LoseRequest),
        2 => any::<bool>().prop_map(Step::Abandon),
        1 => Just(Step::Evict),
        1 => Just(Step::Disturb),
        1 => any::<bool>().prop_map(Step::NoSlot),
        1 => Just(Step::Error),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After any events, the broker fetches what the reader wanted at the request, and a broken session costs one
    /// request.
    #[test]
    fn the_broker_fetches_exactly_what_is_wanted(steps in prop::collection::vec(step(), 1..80)) {
        let mut session = FetchSession::new(Naming::Ids);
        let mut broker = Broker::default();
        let mut wanted = Held::new();
        for step in steps {
            match step {
                Step::Want(t, id, p, offset) => {
                    session.want(key(t, id, p), at(offset));
                    wanted.insert((Uuid([id; 16]), p), at(offset));
                }
                Step::Unwant(t, id, p) => {
                    session.unwant(&key(t, id, p));
                    wanted.remove(&(Uuid([id; 16]), p));
                }
                Step::Exchange => exchange(&mut session, &mut broker, &wanted, false)?,
                Step::LoseAnswer => {
                    let request = session.next_request();
                    broker.serve(&request);
                    session.on_lost();
                }
                Step::LoseRequest => {
                    session.next_request();
                    session.on_lost();
                }
                Step::Abandon(arrives) => {
                    let request = session.next_request();
                    if arrives {
                        broker.serve(&request);
                    }
                    session.on_abandoned();
                }
                Step::Evict => broker.session = None,
                Step::Disturb => {
                    if let Some((_, epoch, _)) = &mut broker.session {
                        *epoch += 1_000;
                    }
                }
                Step::NoSlot(full) => broker.full = full,
                Step::Error => {
                    session.next_request();
                    session.on_answer(ErrorCode::UNKNOWN_SERVER_ERROR, 0, 0);
                }
            }
            prop_assert_eq!(session.len(), wanted.len());
        }
        exchange(&mut session, &mut broker, &wanted, false)?;
    }
}

fn exchange(
    session: &mut FetchSession,
    broker: &mut Broker,
    wanted: &Held,
    again: bool,
) -> Result<(), TestCaseError> {
    let request = session.next_request();
    let (error, id, results, fetched) = broker.serve(&request);
    match session.on_answer(error, id, results) {
        Outcome::Results => prop_assert_eq!(fetched.as_ref(), Some(wanted)),
        Outcome::StartedOver => {
            prop_assert!(!again, "starting over must work at once");
            exchange(session, broker, wanted, true)?;
        }
        Outcome::Refused(error) => prop_assert!(false, "refused: {error}"),
    }
    Ok(())
}
