//! Liveness under faults: outcomes come in time, no healthy connection is closed, no producer is fenced without a rival.

use std::{collections::BTreeMap, time::Duration};

use super::Violation;
use crate::history::{Disconnect, History, Outcome, RecordId, Sent};

/// How late an outcome may reach the caller.
const TOLERANCE: Duration = Duration::from_secs(1);

/// Age below which a request without a response makes no connection suspicious, under any fault. It is half of
/// `curtail.suspicion.min.ms`, so that a rounded timer does not count.
const YOUNG: Duration = Duration::from_millis(100);

/// How long a fault still explains a disconnect after it has ended, beyond `request.timeout.ms`: long enough for replicas to
/// be in sync again.
const AFTERMATH: Duration = Duration::from_secs(4);

/// Longest time to the outcome of a record with no record before it and without a fault: a first record has about
/// eight round trips of at most 100 ms, and `linger.ms` before it.
const PROMPT: Duration = Duration::from_secs(2);

/// How long after a fault its effects may slow a record down.
const UNREST: Duration = Duration::from_secs(10);

/// How long a client keeps a second connection to a broker that it does not use.
const QUIET: Duration = Duration::from_secs(10);

/// Key of Produce. Connections for metadata move to better informed brokers, and a consumer abandons a waiting fetch
/// together with its connection when it has something else to fetch.
const PRODUCE: i16 = 0;

pub(super) fn check(history: &History) -> Vec<Violation> {
    let late = history.sent.iter().filter_map(|sent| {
        let settled = sent.settled.filter(|settled| *settled > sent.due + TOLERANCE)?;
        Some(Violation::TooLate { id: sent.id, due: sent.due, settled })
    });
    let closed =
        history.disconnects.iter().filter(|closed| is_needless(closed, history)).map(|closed| {
            Violation::NeedlessDisconnect {
                between: (closed.client.clone(), closed.broker.clone()),
                at: closed.at,
                unanswered: closed.unanswered,
            }
        });
    let fenced = history.fencings.iter().filter(|fencing| !fencing.justified).map(|fencing| {
        Violation::FencedWithoutRival {
            producer: fencing.producer,
            at: fencing.at,
            error: fencing.error.clone(),
        }
    });
    late.chain(closed).chain(fenced).chain(sluggish(history)).collect()
}

/// Records that are late or expire although nothing delays them.
fn sluggish(history: &History) -> impl Iterator<Item = Violation> {
    // By producer, when the last record had its outcome; `None` while one has none.
    let mut settled: BTreeMap<u32, Option<Duration>> = BTreeMap::new();
    history.sent.iter().filter_map(move |sent| {
        let before = settled.entry(sent.id.producer).or_insert(Some(Duration::ZERO));
        let is_alone = before.is_some_and(|before| before <= sent.at);
        *before = before.zip(sent.settled).map(|(before, settled)| before.max(settled));
        let (id, took): (RecordId, _) = (sent.id, sent.settled?.saturating_sub(sent.at));
        let is_late = took > PROMPT || has_expired(sent);
        let late = is_alone && is_late && is_calm(sent, history);
        late.then_some(Violation::Sluggish { id, took })
    })
}

fn has_expired(sent: &Sent) -> bool {
    match &sent.outcome {
        Outcome::NotWritten { error } | Outcome::MaybeWritten { error } => {
            error.contains("delivery.timeout.ms")
        }
        Outcome::Acknowledged { .. } | Outcome::Pending => false,
    }
}

/// Whether no fault can have touched the record.
fn is_calm(sent: &Sent, history: &History) -> bool {
    let end = sent.settled.unwrap_or(Duration::MAX);
    let touches = |&(begin, over): &(Duration, Duration)| begin <= end && sent.at <= over + UNREST;
    !history.faults.iter().any(touches)
}

/// Whether a disconnect had no reason. A client may leave a broker that does not respond, but not because of one
/// young request, and not without a fault in the cluster. It may close a second connection that it does not use.
fn is_needless(closed: &Disconnect, history: &History) -> bool {
    if closed.api != PRODUCE {
        return false;
    }
    if closed.unanswered.is_none() && closed.spare_for.is_some_and(|quiet| quiet >= QUIET) {
        return false;
    }
    let Some(age) = closed.unanswered.filter(|age| *age >= YOUNG) else { return true };
    if age >= closed.request_timeout {
        return false;
    }
    let explained = |&(begin, end): &(Duration, Duration)| {
        begin <= closed.at && closed.at <= end + closed.request_timeout + AFTERMATH
    };
    !history.faults.iter().any(explained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checker::check as check_all,
        history::{Fencing, Outcome, RecordId, Sent},
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn kinds(history: &History) -> Vec<&'static str> {
        check_all(history).iter().map(Violation::kind).collect()
    }

    fn settled_at(settled: u64) -> History {
        let sent = Sent {
            id: RecordId { producer: 1, number: 0 },
            at: ms(0),
            due: ms(500),
            settled: Some(ms(settled)),
            outcome: Outcome::NotWritten { error: "expired".into() },
        };
        History { sent: vec![sent], ..History::default() }
    }

    #[test]
    fn an_outcome_more_than_a_second_late_is_too_late() {
        assert_eq!(kinds(&settled_at(1500)), [""; 0]);
        assert_eq!(kinds(&settled_at(1501)), ["too-late"]);
    }

    #[test]
    fn a_slow_record_needs_a_fault_or_another_record_before_it() {
        let kinds_with = |change: &dyn Fn(&mut History)| {
            let mut history = settled_at(2001);
            history.sent[0].due = ms(5000);
            change(&mut history);
            kinds(&history)
        };
        assert_eq!(kinds_with(&|_| ()), ["sluggish"]);
        assert_eq!(kinds_with(&|history| history.sent[0].settled = Some(ms(2000))), [""; 0]);
        assert_eq!(kinds_with(&|history| history.faults.push((ms(1), ms(2)))), [""; 0]);
        assert_eq!(kinds_with(&|history| history.faults.push((ms(3000), ms(4000)))), ["sluggish"]);
        let with_another = |settled| {
            kinds_with(&|history| {
                let mut before = history.sent[0].clone();
                before.settled = settled;
                history.sent[0].at = ms(100);
                history.sent[0].settled = Some(ms(4000));
                history.sent.insert(0, before);
            })
        };
        assert_eq!(with_another(Some(ms(101))), [""; 0]);
        assert_eq!(with_another(Some(ms(100))), ["sluggish"]);
        let expired = kinds_with(&|history| {
            history.sent[0].settled = Some(ms(1000));
            let error = "delivery (delivery.timeout.ms)".into();
            history.sent[0].outcome = Outcome::NotWritten { error };
        });
        assert_eq!(expired, ["sluggish"]);
    }

    fn closed(api: i16, unanswered: Option<u64>, faults: &[(u64, u64)]) -> History {
        let disconnect = Disconnect {
            at: ms(10_000),
            client: "clients".into(),
            broker: "broker-1".into(),
            api,
            unanswered: unanswered.map(ms),
            spare_for: None,
            request_timeout: ms(2000),
        };
        let faults = faults.iter().map(|&(begin, end)| (ms(begin), ms(end))).collect();
        History { disconnects: vec![disconnect], faults, ..History::default() }
    }

    #[test]
    fn a_connection_closed_without_an_old_request_in_flight_is_needless() {
        let fault = [(9000, 10_500)];
        assert_eq!(kinds(&closed(0, None, &fault)), ["needless-disconnect"]);
        assert_eq!(kinds(&closed(0, Some(99), &fault)), ["needless-disconnect"]);
        assert_eq!(kinds(&closed(1, Some(99), &fault)), [""; 0]);
    }

    #[test]
    fn a_second_connection_may_be_closed_when_it_was_not_used() {
        let with = |spare_for: Option<u64>, unanswered: Option<u64>| {
            let mut history = closed(0, unanswered, &[]);
            history.disconnects[0].spare_for = spare_for.map(ms);
            kinds(&history)
        };
        assert_eq!(with(Some(10_000), None), [""; 0]);
        assert_eq!(with(Some(9_999), None), ["needless-disconnect"]);
        assert_eq!(with(Some(10_000), Some(50)), ["needless-disconnect"]);
        assert_eq!(with(None, None), ["needless-disconnect"], "the only one");
    }

    #[test]
    fn an_old_request_explains_a_disconnect_only_near_a_fault_or_after_the_request_timeout() {
        assert_eq!(kinds(&closed(0, Some(500), &[])), ["needless-disconnect"]);
        assert_eq!(kinds(&closed(0, Some(500), &[(1000, 2000)])), ["needless-disconnect"]);
        assert_eq!(kinds(&closed(0, Some(500), &[(1000, 5000)])), [""; 0]);
        assert_eq!(kinds(&closed(0, Some(2000), &[])), [""; 0]);
    }

    #[test]
    fn a_fencing_needs_a_rival() {
        let fencing = |justified| {
            let error = "PRODUCER_FENCED".into();
            let fencings = vec![Fencing { at: ms(5), producer: 1, justified, error }];
            History { fencings, ..History::default() }
        };
        assert_eq!(kinds(&fencing(true)), [""; 0]);
        assert_eq!(kinds(&fencing(false)), ["fenced-without-rival"]);
    }
}
