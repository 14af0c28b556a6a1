//! Calls to many brokers, in rounds. Each round sends one request to every broker concerned, all in parallel, for the
//! items without a final result.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use curtail_proto::{
    metadata::Node,
    path::policy::{LEAST_LOOKUP, attempt},
};
use curtail_wire::{
    ErrorCode,
    cold::{Decodable, Message, Request},
    metadata::MetadataResponse,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Admin, BrokerDescription, Call, Each, Target, broker_error,
    describe::{describe_cluster, leader_of},
    passes,
};
use crate::{
    Error, Result, TopicPartition,
    coordinator::{self, Coordinators},
};

/// A broker, and the items requested from it.
type Part<K> = (BrokerDescription, Vec<K>);

/// One attempt of a call, which receives the time in milliseconds that a broker may take.
type Once<'a, T> = Box<dyn FnMut(i32) -> Call<'a, T> + Send + 'a>;

/// One round of a call: the open items, and the time in milliseconds that a broker may take.
type Round<'a, K, T> = Box<dyn FnMut(BTreeSet<K>, i32) -> Call<'a, Each<K, T>> + Send + 'a>;

/// The latest result of each requested item.
struct Results<'a, K, T> {
    asked: &'a [K],
    /// Places in `asked`. An item requested twice has one, the first.
    places: BTreeMap<&'a K, usize>,
    /// By place.
    results: Vec<Option<Result<T>>>,
}

impl<'a, K: Clone + Ord, T> Results<'a, K, T> {
    fn of(asked: &'a [K]) -> Self {
        let mut places = BTreeMap::new();
        for (place, key) in asked.iter().enumerate() {
            places.entry(key).or_insert(place);
        }
        Self { asked, places, results: asked.iter().map(|_| None).collect() }
    }

    /// Adds results, in any order. Ignores results of items that were not requested.
    fn add(&mut self, results: Each<K, T>) {
        for (key, result) in results {
            if let Some(place) = self.places.get(&key) {
                self.results[*place] = Some(result);
            }
        }
    }

    /// The items without a final result.
    fn open(&self) -> BTreeSet<K> {
        let open = self.places.iter().filter(|(_, place)| self.is_open(**place));
        open.map(|(key, _)| (*key).clone()).collect()
    }

    /// Whether the result is missing or retriable.
    fn is_open(&self, place: usize) -> bool {
        let result = self.results[place].as_ref();
        result.is_none_or(|result| result.as_ref().is_err_and(passes))
    }

    /// The reason for another round: the first result that is missing or retriable.
    fn first_open(&self) -> Option<Error> {
        let place = *self.places.values().filter(|place| self.is_open(**place)).min()?;
        let error = self.results[place].as_ref().and_then(|result| result.as_ref().err().cloned());
        Some(error.unwrap_or_else(no_answer))
    }

    fn has_final(&self) -> bool {
        self.places.values().any(|place| !self.is_open(*place))
    }

    /// The results in the order requested.
    fn into_each(mut self) -> Each<K, T> {
        let mut each = Each::with_capacity(self.places.len());
        for (place, key) in self.asked.iter().enumerate() {
            if self.places.get(key) == Some(&place) {
                let result = self.results[place].take().unwrap_or_else(|| Err(no_answer()));
                each.push((key.clone(), result));
            }
        }
        each
    }
}

impl Admin {
    /// Repeats rounds until every item has a final result, or the time is up. `round` receives the open items and the
    /// time in milliseconds that a broker may take.
    pub(super) fn rounds<'a, K, T, F>(
        &'a self,
        what: &'static str,
        asked: impl Into<Vec<K>>,
        mut round: impl FnMut(BTreeSet<K>, i32) -> F + Send + 'a,
    ) -> Call<'a, Each<K, T>>
    where
        K: Clone + Ord + Send + Sync + 'a,
        T: Send + Sync + 'a,
        F: Future<Output = Result<Each<K, T>>> + Send + 'a,
    {
        let round = Box::new(move |open, timeout_ms| -> Call<'a, Each<K, T>> {
            Box::pin(round(open, timeout_ms))
        });
        Box::pin(self.repeated(what, asked.into(), round))
    }

    /// As [`Self::rounds`]. A function for each type of items and results, not for each call.
    async fn repeated<'a, K: Clone + Ord, T>(
        &'a self,
        what: &'static str,
        asked: Vec<K>,
        mut round: Round<'a, K, T>,
    ) -> Result<Each<K, T>> {
        let mut results = Results::of(&asked);
        let mut attempts = self.attempts(what);
        loop {
            let open = results.open();
            if open.is_empty() {
                break;
            }
            let error = match attempts.run(round(open.clone(), attempts.timeout_ms())).await {
                Ok(answered) => {
                    results.add(answered);
                    let Some(error) = results.first_open() else { break };
                    error
                }
                // Final results are kept, even if the others fail.
                Err(error) if results.has_final() => {
                    results.add(failed(open, &error));
                    error
                }
                Err(error) => {
                    attempts.again(error).await?;
                    continue;
                }
            };
            if attempts.again(error).await.is_err() {
                break;
            }
        }
        Ok(results.into_each())
    }

    /// Repeats one request until it has a final result, or the time is up. `once` receives the time in milliseconds
    /// that a broker may take.
    pub(super) fn retried<'a, T, F>(
        &'a self,
        what: &'static str,
        mut once: impl FnMut(i32) -> F + Send + 'a,
    ) -> Call<'a, T>
    where
        T: Send + 'a,
        F: Future<Output = Result<T>> + Send + 'a,
    {
        let limit = self.shared.config.common.default_api_timeout;
        self.retried_within(what, limit, Box::new(move |timeout_ms| Box::pin(once(timeout_ms))))
    }

    /// As [`Self::retried`], with another limit. A function for each type of results, not for each call.
    pub(super) fn retried_within<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        limit: Duration,
        mut once: Once<'a, T>,
    ) -> Call<'a, T> {
        Box::pin(async move {
            let mut attempts = self.attempts_within(what, limit);
            loop {
                match attempts.run(once(attempts.timeout_ms())).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => attempts.again(error).await?,
                }
            }
        })
    }

    /// Sends one request to one broker.
    pub(super) async fn ask<Q, A>(
        &self,
        to: &BrokerDescription,
        versions: RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let target = Target::Broker(to.id);
        let mut connection = self.connection(target, std::slice::from_ref(to)).await?;
        let answer = connection.request(versions, request).await?;
        self.keep(target, connection);
        Ok(answer)
    }

    /// Sends one request to any broker.
    pub(super) async fn ask_any<Q, A>(
        &self,
        versions: RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let mut connection = self.connection(Target::Any, &[]).await?;
        let answer = connection.request(versions, request).await?;
        self.keep(Target::Any, connection);
        Ok(answer)
    }

    /// Sends one request to the controller, looked up each time: it may have moved.
    pub(super) async fn ask_controller<Q, A>(
        &self,
        versions: RangeInclusive<i16>,
        request: impl FnOnce(i16) -> Q,
    ) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let (controller, brokers) = self.controller().await?;
        let target = Target::Broker(controller);
        let mut connection = self.connection(target, &brokers).await?;
        let answer = connection.request(versions, request).await?;
        self.keep(target, connection);
        Ok(answer)
    }

    /// Returns the live brokers, with one request.
    pub(super) async fn brokers(&self) -> Result<Vec<BrokerDescription>> {
        Ok(describe_cluster(self.metadata(Some(&[])).await?).brokers)
    }

    /// Sends requests to brokers by their ids.
    pub(super) async fn at_brokers<T, F>(
        &self,
        ids: BTreeSet<i32>,
        ask: impl Fn(Admin, BrokerDescription) -> F,
    ) -> Result<Each<i32, T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let live = self.brokers().await?;
        let parts = ids.into_iter().map(|id| (id, vec![id])).collect();
        let asked = self.fan_out_to(&live, parts, |admin, broker, _| {
            let id = broker.id;
            let answer = ask(admin, broker);
            async move { Ok(vec![(id, Ok(answer.await?))]) }
        });
        Ok(asked.await)
    }

    /// Sends requests to brokers by their ids, each with its part. The parts of brokers that are not alive fail.
    pub(super) async fn fan_out_to<K, T, F>(
        &self,
        live: &[BrokerDescription],
        parts: BTreeMap<i32, Vec<K>>,
        ask: impl Fn(Admin, BrokerDescription, Vec<K>) -> F,
    ) -> Each<K, T>
    where
        K: Clone + Ord + Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<Each<K, T>>> + Send + 'static,
    {
        let mut results = Each::new();
        let mut known = Vec::new();
        for (id, part) in parts {
            match live.iter().find(|broker| broker.id == id) {
                Some(broker) => known.push((broker.clone(), part)),
                None => results.extend(failed(part, &unknown_broker(id, live))),
            }
        }
        results.extend(self.fan_out(known, ask).await);
        results
    }

    /// Sends requests to the leaders of partitions. A slow request is abandoned once another leader is elected: a
    /// dead leader would delay the call by `request.timeout.ms`.
    pub(super) async fn at_leaders<T, F>(
        &self,
        partitions: BTreeSet<TopicPartition>,
        ask: impl Fn(Admin, BrokerDescription, Vec<TopicPartition>) -> F,
    ) -> Result<Each<TopicPartition, T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<Each<TopicPartition, T>>> + Send + 'static,
    {
        let mut names: Vec<&str> = partitions.iter().map(|at| &*at.topic).collect();
        names.dedup();
        let metadata = self.metadata(Some(&names)).await?;
        let mut results = Each::new();
        let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for at in &partitions {
            match leader_in(&metadata, at) {
                Ok(leader) => by_leader.entry(leader).or_default().push(at.clone()),
                Err(error) => results.push((at.clone(), Err(error))),
            }
        }
        let brokers = describe_cluster(metadata).brokers;
        let mut parts = Vec::new();
        for (leader, part) in by_leader {
            match brokers.iter().find(|broker| broker.id == leader) {
                Some(broker) => parts.push((broker.clone(), part)),
                None => results.extend(part.into_iter().map(|at| {
                    let code = ErrorCode::LEADER_NOT_AVAILABLE;
                    let error = broker_error(&at.to_string(), code, None);
                    (at, Err(error))
                })),
            }
        }
        let asked = self.fan_out(parts, |admin, broker, part| {
            let leader = broker.id;
            let (watching, watched) = (admin.clone(), part.clone());
            let answer = ask(admin, broker, part);
            async move {
                tokio::select! {
                    biased;
                    answered = answer => answered,
                    moved = watching.until_moved(leader, &watched) => Err(moved),
                }
            }
        });
        results.extend(asked.await);
        Ok(results)
    }

    /// Waits until one of the partitions has another leader, and returns the error for that.
    async fn until_moved(&self, leader: i32, partitions: &[TopicPartition]) -> Error {
        let mut names: Vec<&str> = partitions.iter().map(|at| &*at.topic).collect();
        names.dedup();
        let patience = attempt(self.shared.config.common.retry_backoff_max, 0, Duration::MAX);
        loop {
            sleep(patience).await;
            // After the timeout the connection is dropped, and the next request goes to any other broker.
            let asking = timeout(patience.max(LEAST_LOOKUP), self.metadata(Some(&names)));
            let Ok(Ok(metadata)) = asking.await else { continue };
            let moved =
                |at: &&TopicPartition| leader_in(&metadata, at).is_ok_and(|id| id != leader);
            if let Some(at) = partitions.iter().find(moved) {
                return broker_error(&at.to_string(), ErrorCode::NOT_LEADER_OR_FOLLOWER, None);
            }
        }
    }

    /// Sends requests to the coordinators of groups or of transactional ids.
    pub(super) async fn at_coordinators<T, F>(
        &self,
        kind: Coordinators,
        ids: BTreeSet<String>,
        ask: impl Fn(Admin, BrokerDescription, Vec<String>) -> F,
    ) -> Result<Each<String, T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<Each<String, T>>> + Send + 'static,
    {
        let keys: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found = self.coordinators(kind, &keys).await?;
        let mut results = Each::new();
        let mut parts: BTreeMap<i32, Part<String>> = BTreeMap::new();
        for (id, found) in ids.into_iter().zip(found) {
            match found {
                Ok(broker) => {
                    parts.entry(broker.id).or_insert((broker, Vec::new())).1.push(id);
                }
                Err(code) => {
                    let error = broker_error(&kind.name(&id), code, None);
                    results.push((id, Err(error)));
                }
            }
        }
        results.extend(self.fan_out(parts.into_values().collect(), ask).await);
        Ok(results)
    }

    /// Returns the coordinator of each, in the same order.
    pub(super) async fn coordinators(
        &self,
        kind: Coordinators,
        ids: &[&str],
    ) -> Result<Vec<Result<BrokerDescription, ErrorCode>>> {
        let mut connection = self.connection(Target::Any, &[]).await?;
        let found = coordinator::ask_each(&mut connection, kind, ids).await?;
        self.keep(Target::Any, connection);
        let broker = |node: Node| {
            let Node { id, host, port, rack } = node;
            BrokerDescription { id, host, port, rack }
        };
        Ok(found.into_iter().map(|found| found.map(broker)).collect())
    }

    /// Returns the ids of the live brokers. Retries until they are known.
    pub(super) async fn broker_ids(&self, what: &'static str) -> Result<Vec<i32>> {
        let brokers = self.retried(what, |_| self.brokers()).await?;
        Ok(brokers.into_iter().map(|broker| broker.id).collect())
    }

    /// Sends requests to all brokers in parallel. A failure affects only its own part.
    pub(super) async fn fan_out<K, T, F>(
        &self,
        parts: Vec<Part<K>>,
        ask: impl Fn(Admin, BrokerDescription, Vec<K>) -> F,
    ) -> Each<K, T>
    where
        K: Clone + Ord + Send + 'static,
        T: Send + 'static,
        F: Future<Output = Result<Each<K, T>>> + Send + 'static,
    {
        let mut asking = JoinSet::new();
        for (broker, keys) in parts {
            let answer = ask(self.clone(), broker, keys.clone());
            asking.spawn(async move { (keys, answer.await) });
        }
        let mut results = Each::new();
        while let Some(answered) = asking.join_next().await {
            match answered {
                Ok((_, Ok(part))) => results.extend(part),
                Ok((keys, Err(error))) => results.extend(failed(keys, &error)),
                // The runtime is ending, and `within` ends the call.
                Err(lost) if lost.is_cancelled() => std::future::pending().await,
                // The result of a task that panicked is missing: its part stays open.
                Err(_) => {}
            }
        }
        results
    }
}

/// The error for an id that no live broker has.
pub(super) fn unknown_broker(id: i32, live: &[BrokerDescription]) -> Error {
    let reason = not_live(live);
    broker_error(&format!("broker {id}"), ErrorCode::BROKER_ID_NOT_REGISTERED, Some(&reason))
}

/// Names the live brokers, in place of one that is not.
pub(super) fn not_live(live: &[BrokerDescription]) -> String {
    let ids: BTreeSet<i32> = live.iter().map(|broker| broker.id).collect();
    let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
    match ids.as_slice() {
        [] => "no broker is alive".to_owned(),
        [id] => format!("it is not alive; the only live broker is {id}"),
        ids => format!("it is not alive; the live brokers are {}", ids.join(", ")),
    }
}

pub(super) fn leader_in(metadata: &MetadataResponse, at: &TopicPartition) -> Result<i32> {
    let topic = metadata.topics.iter().find(|t| t.name.as_deref() == Some(&*at.topic));
    match topic {
        Some(topic) => leader_of(topic, at.partition),
        None => Err(Error::UnknownTopic(at.topic.clone())),
    }
}

/// Orders results as requested. An item requested twice has one result.
pub(super) fn in_order<K: Clone + Ord, T>(asked: &[K], answered: Each<K, T>) -> Each<K, T> {
    let mut results = Results::of(asked);
    results.add(answered);
    results.into_each()
}

/// The same error for each item.
fn failed<K, T>(keys: impl IntoIterator<Item = K>, error: &Error) -> Each<K, T> {
    keys.into_iter().map(|key| (key, Err(error.clone()))).collect()
}

/// Final: a broker that leaves out an item does so again.
fn no_answer() -> Error {
    broker_error(
        "answer",
        ErrorCode::UNKNOWN_SERVER_ERROR,
        Some("the broker's response omits this"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> Result<u32> {
        Err(broker_error("it", code, None))
    }

    #[test]
    fn results_have_the_order_of_the_items_and_one_for_each() {
        let asked = ["c", "a", "b", "a"];
        let answered = vec![("b", Ok(2)), ("other", Ok(9)), ("a", Ok(0)), ("a", Ok(1))];
        let each = in_order(&asked, answered);
        let texts: Vec<(&str, String)> =
            each.into_iter().map(|(key, result)| (key, format!("{:?}", result.ok()))).collect();
        let expected = [("c", "None"), ("a", "Some(1)"), ("b", "Some(2)")];
        assert_eq!(texts, expected.map(|(key, text)| (key, text.to_owned())));
    }

    #[test]
    fn items_are_open_until_their_result_is_final() {
        let asked = ["c", "b", "a"];
        let mut results = Results::of(&asked);
        assert!(!results.has_final());
        results.add(vec![
            ("a", Ok(1)),
            ("b", refused(ErrorCode::REQUEST_TIMED_OUT)),
            ("c", refused(ErrorCode::INVALID_REQUEST)),
        ]);
        assert_eq!(results.open(), BTreeSet::from(["b"]));
        assert!(results.has_final());
        let reason = results.first_open().map(|error| error.code());
        assert_eq!(reason, Some(Some(ErrorCode::REQUEST_TIMED_OUT)));
        results.add(vec![("b", Ok(2))]);
        assert!(results.open().is_empty() && results.first_open().is_none());
    }

    #[test]
    fn the_first_open_item_in_the_order_requested_gives_the_reason() {
        let asked = ["b", "a"];
        let mut results = Results::of(&asked);
        results.add(vec![
            ("a", refused(ErrorCode::REQUEST_TIMED_OUT)),
            ("b", refused(ErrorCode::NOT_CONTROLLER)),
        ]);
        let reason = results.first_open().and_then(|error| error.code());
        assert_eq!(reason, Some(ErrorCode::NOT_CONTROLLER));
    }
}
