//! The timeline of one record.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use curtail::ErrorCode;

use super::{
    Line, Place, READER, Timeline,
    broker::{Served, Session, Took},
    client::Traced,
};

/// Time before a record was due and after its acknowledgement that belongs to its timeline, in milliseconds.
const MARGIN: f64 = 5.0;

/// Fetches of followers that are listed for each follower.
const FETCHES: usize = 4;

/// How long a fetch that does not name the partition is in flight after the batch, to be listed, in milliseconds.
const LONG_FETCH: f64 = 50.0;

/// Most requests that are listed as in flight while a record waited for its first one.
const WHILE_IT_WAITED: usize = 3;

/// The part of that wait for which such a request was in flight, at least.
const PART_OF_WAIT: f64 = 0.25;

/// A batch over all its attempts: its partition, and the producer epoch and first sequence number it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity<'a> {
    partition: &'a str,
    stamp: &'a str,
}

/// A batch as a `sent` event names it.
struct Batch<'a> {
    identity: Identity<'a>,
    leader_epoch: &'a str,
    records: i64,
    attempt: &'a str,
}

/// A partition's result as an `answered` event names it.
struct Outcome<'a> {
    partition: &'a str,
    error: &'a str,
    base_offset: i64,
    leader: i32,
    leader_epoch: &'a str,
}

impl Timeline {
    /// Explains the latency of a record. Empty if no response of the run acknowledges it.
    pub(crate) fn explain(&self, place: Place) -> Vec<Line> {
        let topic = self.topics.first().map_or("", String::as_str);
        let name = format!("{topic}-{}", place.partition);
        let flights = self.flights();
        let Some((identity, attempts)) = attempts(&flights, &name, place.offset) else {
            return Vec::new();
        };
        let (due, end) = (place.due.as_secs_f64() * 1e3, place.acknowledged.as_secs_f64() * 1e3);
        let mut lines = vec![Line { at_ms: due, text: "due".into() }];
        if let Some((first, _)) = attempts.first() {
            lines.extend(self.while_it_waited(&flights, due, self.ms_of(first.at)));
        }
        let mut leaders = Vec::new();
        for (sent, answered) in &attempts {
            lines.push(self.sent(sent, &identity));
            lines.extend(self.ahead(sent));
            let broker = sent.number("broker").unwrap_or(-1);
            leaders.push((broker, self.ms_of(sent.at)));
            if let Some(answered) = answered {
                lines.extend(self.served_part(sent, answered));
                lines.push(self.answered(answered, &name));
            }
        }
        lines.extend(self.leader_changes(&name, due, end));
        lines.extend(self.connections(due, end));
        lines.extend(self.followers(place, &leaders, end));
        lines.extend(self.other_fetches(place, &leaders, end));
        lines.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        lines
    }

    /// All requests with records, in the order in which they were sent.
    fn flights(&self) -> Vec<Attempt<'_>> {
        let mut flights: Vec<Attempt<'_>> = Vec::new();
        let mut open: BTreeMap<(Connection<'_>, &str), usize> = BTreeMap::new();
        for event in &self.traced {
            let request = (connection(event), event.get("correlation_id"));
            match event.get("event") {
                "sent" => {
                    open.insert(request, flights.len());
                    flights.push((event, None));
                }
                "answered" => {
                    if let Some(index) = open.remove(&request) {
                        flights[index].1 = Some(event);
                    }
                }
                "disconnected" => open.retain(|(of, _), _| *of != connection(event)),
                _ => {}
            }
        }
        flights
    }

    /// The requests that were in flight for the longest part of the time from `due` to `sent`: a record may have waited for
    /// them in the producer.
    fn while_it_waited(&self, flights: &[Attempt<'_>], due: f64, sent: f64) -> Vec<Line> {
        let least = ((sent - due) * PART_OF_WAIT).max(MARGIN);
        let mut longest = Vec::new();
        for &(request, answered) in flights {
            let Some(answered) = answered else { continue };
            let (from, until) = (self.ms_of(request.at), self.ms_of(answered.at));
            let overlap: f64 = until.min(sent) - from.max(due);
            if overlap >= least {
                longest.push((overlap, request, answered));
            }
        }
        longest.sort_by(|a, b| b.0.total_cmp(&a.0));
        longest.truncate(WHILE_IT_WAITED);
        let mut lines = Vec::new();
        for (_, request, answered) in longest {
            let at_ms = self.ms_of(answered.at);
            let took = at_ms - self.ms_of(request.at);
            let (broker, id) = (request.get("broker"), request.get("correlation_id"));
            let (side, partitions) = (side(request), batches(request).count());
            let text = format!(
                "  while it waited, request {id} to broker {broker}{side} with {partitions} partitions was in flight for {took:.1} ms"
            );
            lines.push(Line { at_ms, text });
            lines.extend(self.served_part(request, answered));
        }
        lines
    }

    fn sent(&self, sent: &Traced, identity: &Identity<'_>) -> Line {
        let batch = batches(sent).find(|batch| batch.identity == *identity);
        let of = batch.map_or(String::new(), |batch| {
            let Batch { records, attempt, leader_epoch, .. } = batch;
            format!("{records} records, attempt {attempt}, leader epoch {leader_epoch}; ")
        });
        let (broker, id, side) = (sent.get("broker"), sent.get("correlation_id"), side(sent));
        let partitions = batches(sent).count();
        let text = format!(
            "request {id} to broker {broker}{side}: {of}{partitions} partitions in the request"
        );
        Line { at_ms: self.ms_of(sent.at), text }
    }

    /// The requests in flight on the connection before this one.
    fn ahead(&self, sent: &Traced) -> Option<Line> {
        let ahead: usize = sent.number("ahead")?;
        let until = self.traced.iter().take_while(|event| !std::ptr::eq(*event, sent));
        let before: Vec<&Traced> = until
            .filter(|event| event.get("event") == "sent" && connection(event) == connection(sent))
            .collect();
        let before = &before[before.len().saturating_sub(ahead)..];
        let oldest = before.first()?;
        let at_ms = self.ms_of(sent.at);
        let age = at_ms - self.ms_of(oldest.at);
        let partitions: usize = before.iter().map(|event| batches(event).count()).sum();
        let text = format!(
            "  behind {ahead} requests with {partitions} partitions; the oldest was sent {age:.1} ms before"
        );
        Some(Line { at_ms, text })
    }

    /// The broker's own account of the request.
    fn served_part(&self, sent: &Traced, answered: &Traced) -> Option<Line> {
        let (broker, id): (i32, i32) = (sent.number("broker")?, sent.number("correlation_id")?);
        let read = self.ms_of(answered.at);
        let same = |served: &&Served| {
            served.broker == broker && served.api == "PRODUCE" && served.correlation_id == id
        };
        let off = |served: &Served| (self.ms_of_wall(served.sent) - read).abs();
        let served = self.served.iter().filter(same).min_by(|a, b| off(a).total_cmp(&off(b)))?;
        let Took { total, queue, local, remote, response } = served.took;
        let text = format!(
            "  broker {broker} served request {id} in {total:.1} ms: queue {queue:.1}, append {local:.1}, waiting for followers \
             {remote:.1}, response {response:.1}"
        );
        Some(Line { at_ms: self.ms_of_wall(served.received()), text })
    }

    fn answered(&self, answered: &Traced, name: &str) -> Line {
        let broker = answered.get("broker");
        let text = match outcomes(answered).find(|of| of.partition == name) {
            None => {
                format!("response of broker {broker}; the batch had been taken out of the request")
            }
            Some(Outcome { error: "NONE", .. }) => {
                format!("response of broker {broker}: acknowledged")
            }
            Some(Outcome { error, base_offset, leader, leader_epoch, .. }) => {
                let after = if base_offset >= 0 { " after it had appended the batch" } else { "" };
                let named = match leader {
                    -1 => String::new(),
                    _ => format!("; the leader is broker {leader}, epoch {leader_epoch}"),
                };
                format!("response of broker {broker}: {error}{after}{named}")
            }
        };
        Line { at_ms: self.ms_of(answered.at), text }
    }

    /// Changes of the partition's leader in the producer's metadata.
    fn leader_changes(&self, name: &str, from: f64, until: f64) -> Vec<Line> {
        let changes = self
            .traced
            .iter()
            .filter(|event| event.get("event") == "leaders" && event.get("client") != READER);
        let of = |event: &Traced| {
            let at_ms = self.ms_of(event.at);
            let all = event.get("leaders").split(';').filter(|change| !change.is_empty());
            let own = all.clone().find(|change| change.split(' ').next() == Some(name))?;
            let mut fields = own.split(' ').skip(1);
            let (leader, epoch) = (fields.next()?, fields.next()?);
            let text = format!(
                "the producer knows: leader is broker {leader}, epoch {epoch} (one of {} changes)",
                all.count()
            );
            (from - MARGIN..=until + MARGIN).contains(&at_ms).then_some(Line { at_ms, text })
        };
        changes.filter_map(of).collect()
    }

    fn connections(&self, from: f64, until: f64) -> Vec<Line> {
        let of = |event: &Traced| {
            let at_ms = self.ms_of(event.at);
            let (broker, side) = (event.get("broker"), side(event));
            let text = match event.get("event") {
                "connected" => format!("connected to broker {broker}{side}"),
                "disconnected" => {
                    format!("connection to broker {broker}{side} lost: {}", event.get("error"))
                }
                _ => return None,
            };
            (from..=until).contains(&at_ms).then_some(Line { at_ms, text })
        };
        self.traced.iter().filter_map(of).collect()
    }

    /// The followers' fetches at the leaders of a batch, in order: the follower, when the leader was first sent the batch, and
    /// the fetch.
    fn fetches_at<'a>(&'a self, leaders: &[(i32, f64)]) -> Vec<(i32, f64, &'a Served)> {
        let fetch = |served: &'a Served| {
            let (_, since) = leaders.iter().find(|(leader, _)| *leader == served.broker)?;
            let follower = served.follower().filter(|_| served.api == "FETCH")?;
            Some((follower, *since, served))
        };
        let mut fetches: Vec<_> = self.served.iter().filter_map(fetch).collect();
        fetches.sort_by_key(|(_, _, served)| served.received());
        fetches
    }

    /// Each follower's first fetches of the partition at each leader of the batch, and when the leader
    /// reported a high watermark after the record.
    fn followers(&self, place: Place, leaders: &[(i32, f64)], end: f64) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut listed: BTreeMap<(i32, i32), usize> = BTreeMap::new();
        for (follower, since, served) in self.fetches_at(leaders) {
            let Some(of) = served.partition(&self.topics, place.partition) else { continue };
            let (received, sent) =
                (self.ms_of_wall(served.received()), self.ms_of_wall(served.sent));
            if sent < since || received > end {
                continue;
            }
            let passed = matches!(of.told, Some((_, Some(mark))) if mark > place.offset);
            let count = listed.entry((served.broker, follower)).or_default();
            *count += 1;
            if *count > FETCHES && !passed {
                continue;
            }
            let asked = of.asked.map_or(String::new(), |(offset, epoch)| {
                format!(" from offset {offset} with leader epoch {epoch}")
            });
            let told = match of.told {
                None => "the response omits it".to_owned(),
                Some((0, mark)) => format!("high watermark {}", mark.unwrap_or(-1)),
                Some((code, _)) => ErrorCode(i16::try_from(code).unwrap_or(-1)).name().to_owned(),
            };
            let (waited, sent_ago) = (served.took.remote, since - received);
            let early = if sent_ago > 0.0 {
                format!(", begun {sent_ago:.1} ms before")
            } else {
                String::new()
            };
            let text = format!(
                "  follower {follower} fetches it at broker {}{asked}: {told}; waited {waited:.1} ms{early}",
                served.broker
            );
            lines.push(Line { at_ms: sent, text });
        }
        lines
    }

    /// Fetches of followers in flight after the batch had reached their leader, that do not name its partition, and that took
    /// long. In a fetch session the partition may be among those that have not changed.
    fn other_fetches(&self, place: Place, leaders: &[(i32, f64)], end: f64) -> Vec<Line> {
        let mut lines = Vec::new();
        for (follower, since, served) in self.fetches_at(leaders) {
            let (from, until) = (self.ms_of_wall(served.received()), self.ms_of_wall(served.sent));
            let lasts = until.min(end) - from.max(since);
            if lasts < LONG_FETCH || served.partition(&self.topics, place.partition).is_some() {
                continue;
            }
            let named = served.partitions.iter().filter(|of| of.asked.is_some()).count();
            let told = served.partitions.iter().filter(|of| of.told.is_some()).count();
            let session = served.session.map_or(String::new(), |Session { epoch, forgotten }| {
                format!(", request {epoch} of its session, which forgets {forgotten}")
            });
            let text = format!(
                "  follower {follower} fetches at broker {} without naming it, for {:.1} ms: {named} partitions named, {told} \
                 answered{session}",
                served.broker, served.took.total
            );
            lines.push(Line { at_ms: from, text });
        }
        lines
    }
}

/// A connection of the producer: broker and branch.
type Connection<'a> = (&'a str, &'a str);

fn connection(event: &Traced) -> Connection<'_> {
    (event.get("broker"), event.get("branch"))
}

/// Names the side lane's connection; the main lane's is the usual one.
fn side(event: &Traced) -> &'static str {
    if event.get("branch") == "Side" { " on the side lane" } else { "" }
}

/// A request, and its response.
type Attempt<'a> = (&'a Traced, Option<&'a Traced>);

/// The batch with the record at this offset, and all attempts at it in order.
fn attempts<'a>(
    flights: &[Attempt<'a>],
    name: &str,
    offset: i64,
) -> Option<(Identity<'a>, Vec<Attempt<'a>>)> {
    let batch = |sent: &'a Traced| batches(sent).find(|of| of.identity.partition == name);
    let attempts: Vec<(Batch<'a>, Attempt<'a>)> =
        flights.iter().filter_map(|flight| Some((batch(flight.0)?, *flight))).collect();
    let holds = |(batch, (_, answered)): &(Batch<'a>, Attempt<'a>)| {
        let outcome = answered.and_then(|of| outcomes(of).find(|of| of.partition == name));
        outcome.is_some_and(|of| {
            of.error == "NONE"
                && of.base_offset >= 0
                && (of.base_offset..of.base_offset + batch.records).contains(&offset)
        })
    };
    let found = attempts.iter().rev().find(|attempt| holds(attempt))?.0.identity.clone();
    let attempts = attempts.into_iter().filter(|(batch, _)| batch.identity == found);
    let attempts = attempts.map(|(_, flight)| flight).collect();
    Some((found, attempts))
}

/// The batches that a `sent` event names.
fn batches(sent: &Traced) -> impl Iterator<Item = Batch<'_>> {
    sent.get("batches").split(';').filter_map(|text| {
        let mut fields = text.split(' ');
        let mut next = || fields.next();
        let (partition, leader_epoch, stamp) = (next()?, next()?, next()?);
        let (records, attempt) = (next()?.parse().ok()?, next()?);
        Some(Batch { identity: Identity { partition, stamp }, leader_epoch, records, attempt })
    })
}

/// Refusals in an `answered` event, as the name of their kind.
pub(super) fn refusals(answered: &Traced) -> impl Iterator<Item = String> {
    outcomes(answered).filter(|of| of.error != "NONE").map(|of| {
        let when = if of.base_offset < 0 { "before" } else { "after" };
        format!("batches refused {when} the append: {}", of.error)
    })
}

/// The results that an `answered` event names.
fn outcomes(answered: &Traced) -> impl Iterator<Item = Outcome<'_>> {
    answered.get("results").split(';').filter_map(|text| {
        let mut fields = text.split(' ');
        let mut next = || fields.next();
        let (partition, error, base_offset) = (next()?, next()?, next()?.parse().ok()?);
        let (leader, leader_epoch) = (next()?.parse().ok()?, next()?);
        Some(Outcome { partition, error, base_offset, leader, leader_epoch })
    })
}
