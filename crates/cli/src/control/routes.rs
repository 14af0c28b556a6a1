//! The routes of the control endpoint, without HTTP's bytes.

use std::fmt::Display;

use curtail::error::Report;
use curtail_cluster::{ActiveFault, Cluster, ClusterError, CoordinatorKey, FaultError, Injection};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    metrics::{self, Requests},
    target::Target,
};

/// What a route answers.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: String,
    /// The methods of the path, if the request's is none of them.
    pub(super) allow: Option<String>,
}

/// The methods and paths. A part in braces stands for any text.
pub(crate) const ROUTES: &[(Method, &str, Route)] = &[
    (Method::GET, "/healthz", Route::Health),
    (Method::GET, "/readyz", Route::Ready),
    (Method::GET, "/metrics", Route::Metrics),
    (Method::GET, "/v1/faults", Route::ListFaults),
    (Method::POST, "/v1/faults", Route::Inject),
    (Method::DELETE, "/v1/faults", Route::LiftAll),
    (Method::GET, "/v1/faults/{name}", Route::ShowFault),
    (Method::DELETE, "/v1/faults/{name}", Route::Lift),
    (Method::GET, "/v1/brokers", Route::Brokers),
    (Method::POST, "/v1/brokers/{id}/kill", Route::Kill),
    (Method::POST, "/v1/brokers/{id}/stop", Route::Stop),
    (Method::POST, "/v1/brokers/{id}/restart", Route::Restart),
    (Method::POST, "/v1/brokers/{id}/expire-fetch-sessions", Route::ExpireFetchSessions),
    (Method::PUT, "/v1/topics/{topic}/partitions/{partition}/leader", Route::MoveLeader),
    (
        Method::POST,
        "/v1/topics/{topic}/partitions/{partition}/expire-producer-ids",
        Route::ExpireProducerIds,
    ),
    (Method::PUT, "/v1/coordinator", Route::MoveCoordinator),
];

/// See [`ROUTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Ready,
    Metrics,
    ListFaults,
    Inject,
    LiftAll,
    ShowFault,
    Lift,
    Brokers,
    Kill,
    Stop,
    Restart,
    ExpireFetchSessions,
    MoveLeader,
    ExpireProducerIds,
    MoveCoordinator,
}

/// A broker's state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerState {
    pub(crate) id: i32,
    pub(crate) address: String,
    /// Whether its process runs.
    pub(crate) running: bool,
    /// Whether it has a session with the controller.
    pub(crate) live: bool,
}

/// All brokers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Brokers {
    pub(crate) brokers: Vec<BrokerState>,
}

/// All faults.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultList {
    pub(crate) faults: Vec<ActiveFault>,
}

/// The number of faults that were lifted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lifted {
    pub(crate) lifted: usize,
}

/// The number of fetch sessions or producers that were forgotten.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expired {
    pub(crate) expired: usize,
}

/// A partition's new leader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLeader {
    pub(crate) broker: i32,
}

/// The new coordinator of a group or of a transactional id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCoordinator {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transactional_id: Option<String>,
    pub(crate) broker: i32,
}

impl NewCoordinator {
    /// The key: exactly one.
    pub(crate) fn key(&self) -> Result<CoordinatorKey, &'static str> {
        match (&self.group, &self.transactional_id) {
            (Some(group), None) => Ok(CoordinatorKey::Group(group.clone())),
            (None, Some(id)) => Ok(CoordinatorKey::TransactionalId(id.clone())),
            _ => Err("give either group or transactional_id"),
        }
    }
}

/// Why a request was refused, in one line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
}

impl Answer {
    fn text(status: StatusCode, body: String) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body, allow: None }
    }

    fn json(status: StatusCode, body: &impl Serialize) -> Self {
        match serde_json::to_string(body) {
            Ok(body) => Self { status, content_type: "application/json", body, allow: None },
            Err(error) => Self::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// An error in one line.
    pub(super) fn refuse(status: StatusCode, error: impl Display) -> Self {
        let error = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::json(status, &Refusal { error })
    }
}

/// Returns the texts for the parts in braces, if the path has the route's form.
fn parameters<'a>(form: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut form, mut path) = (form.split('/'), path.split('/'));
    let mut found = Vec::new();
    loop {
        match (form.next(), path.next()) {
            (None, None) => return Some(found),
            (Some(part), Some(text)) if part.starts_with('{') && !text.is_empty() => {
                found.push(text);
            }
            (Some(part), Some(text)) if part == text => {}
            _ => return None,
        }
    }
}

/// Returns whether a request only reads health, readiness or metrics.
pub(super) fn is_reading(method: &Method, path: &str) -> bool {
    let is_of = |route: &Route| matches!(route, Route::Health | Route::Ready | Route::Metrics);
    let mut reading = ROUTES.iter().filter(|(.., route)| is_of(route));
    reading.any(|(known, form, _)| known == method && *form == path)
}

/// Answers a request.
pub(super) async fn answer(
    target: &Target,
    requests: &Requests,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Answer {
    let of_path: Vec<_> = ROUTES
        .iter()
        .filter_map(|(method, form, route)| Some((method, *route, parameters(form, path)?)))
        .collect();
    if of_path.is_empty() {
        return Answer::refuse(StatusCode::NOT_FOUND, format!("no such path: {path}"));
    }
    let Some((_, route, parameters)) = of_path.iter().find(|(known, ..)| *known == method) else {
        let methods: Vec<_> = of_path.iter().map(|(method, ..)| method.as_str()).collect();
        let allow = methods.join(", ");
        let refused = format!("{method} {path}: use {allow}");
        let refused = Answer::refuse(StatusCode::METHOD_NOT_ALLOWED, refused);
        return Answer { allow: Some(allow), ..refused };
    };
    let done = match route {
        Route::Health => Ok(Answer::text(StatusCode::OK, "ok\n".to_owned())),
        Route::Ready => Ok(ready(target).await),
        Route::Metrics => Ok(Answer {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..Answer::text(StatusCode::OK, metrics::text(target, requests))
        }),
        Route::ListFaults => {
            Ok(Answer::json(StatusCode::OK, &FaultList { faults: target.faults() }))
        }
        Route::LiftAll => Ok(Answer::json(StatusCode::OK, &Lifted { lifted: target.lift_all() })),
        Route::Inject => inject(target, body),
        Route::ShowFault => show(target, parameters[0]),
        Route::Lift => lift(target, parameters[0]),
        Route::Brokers => Ok(Answer::json(StatusCode::OK, &Brokers { brokers: target.brokers() })),
        Route::Kill | Route::Stop | Route::Restart | Route::ExpireFetchSessions => {
            on_broker(target, *route, parameters[0]).await
        }
        Route::MoveLeader => move_leader(target, parameters, body),
        Route::MoveCoordinator => move_coordinator(target, body),
        Route::ExpireProducerIds => expire_producer_ids(target, parameters),
    };
    done.unwrap_or_else(|refused| refused)
}

/// A cluster is ready once every broker has a session with the controller; a proxy while it reaches every broker
/// that the cluster names.
async fn ready(target: &Target) -> Answer {
    target.probe().await;
    let brokers = target.brokers();
    let status = match brokers.iter().all(|broker| broker.running && broker.live) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Answer::json(status, &Brokers { brokers })
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Answer> {
    serde_json::from_slice(body).map_err(|error| {
        Answer::refuse(StatusCode::BAD_REQUEST, format!("the body is not as expected: {error}"))
    })
}

fn inject(target: &Target, body: &[u8]) -> Result<Answer, Answer> {
    let injection: Injection = decode(body)?;
    let name = target.inject(injection).map_err(|error| {
        let status = match error {
            FaultError::NameTaken(_) => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        Answer::refuse(status, error)
    })?;
    Ok(Answer { status: StatusCode::CREATED, ..show(target, &name)? })
}

fn unknown_fault(name: &str) -> Answer {
    Answer::refuse(StatusCode::NOT_FOUND, format!("no fault is named '{name}'"))
}

fn show(target: &Target, name: &str) -> Result<Answer, Answer> {
    let fault = target.faults().into_iter().find(|fault| fault.name == name);
    fault.map(|fault| Answer::json(StatusCode::OK, &fault)).ok_or_else(|| unknown_fault(name))
}

fn lift(target: &Target, name: &str) -> Result<Answer, Answer> {
    match target.lift(name) {
        true => Ok(Answer::json(StatusCode::OK, &Lifted { lifted: 1 })),
        false => Err(unknown_fault(name)),
    }
}

async fn on_broker(target: &Target, route: Route, id: &str) -> Result<Answer, Answer> {
    let cluster = target.cluster()?;
    let unknown =
        || Answer::refuse(StatusCode::NOT_FOUND, format!("the cluster has no broker {id}"));
    let (number, broker) = id
        .parse()
        .ok()
        .and_then(|number: i32| Some((number, cluster.broker(number)?)))
        .ok_or_else(unknown)?;
    let is_down = Answer::refuse(StatusCode::CONFLICT, format!("broker {id} is not running"));
    match route {
        Route::Restart => cluster.restart(number).await.map_err(|error| {
            let status = match error {
                ClusterError::AlreadyRunning(_) => StatusCode::CONFLICT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Answer::refuse(status, Report::new(&error))
        })?,
        _ if !broker.is_up() => return Err(is_down),
        Route::Stop => cluster.stop(number).await,
        Route::ExpireFetchSessions => {
            let expired = cluster.expire_fetch_sessions(number).ok_or(is_down)?;
            return Ok(Answer::json(StatusCode::OK, &Expired { expired }));
        }
        _ => cluster.kill(number),
    }
    Ok(Answer::json(StatusCode::OK, &Brokers { brokers: target.brokers() }))
}

/// Returns the topic and the partition in a path.
fn partition<'a>(cluster: &Cluster, parameters: &[&'a str]) -> Result<(&'a str, i32), Answer> {
    let (topic, partition) = (parameters[0], parameters[1]);
    let known = |index: &i32| cluster.isr(topic, *index).is_some();
    let index = partition.parse().ok().filter(known);
    index.map(|index| (topic, index)).ok_or_else(|| {
        Answer::refuse(StatusCode::NOT_FOUND, format!("no partition {topic}-{partition}"))
    })
}

fn expire_producer_ids(target: &Target, parameters: &[&str]) -> Result<Answer, Answer> {
    let cluster = target.cluster()?;
    let (topic, index) = partition(cluster, parameters)?;
    let expired = cluster.expire_producer_ids(topic, index).unwrap_or(0);
    Ok(Answer::json(StatusCode::OK, &Expired { expired }))
}

fn move_coordinator(target: &Target, body: &[u8]) -> Result<Answer, Answer> {
    let cluster = target.cluster()?;
    let new: NewCoordinator = decode(body)?;
    let key = new.key().map_err(|error| Answer::refuse(StatusCode::BAD_REQUEST, error))?;
    let moved = cluster.move_coordinator(&key, new.broker);
    moved.map_err(|error| Answer::refuse(StatusCode::CONFLICT, Report::new(&error)))?;
    Ok(Answer::json(StatusCode::OK, &new))
}

fn move_leader(target: &Target, parameters: &[&str], body: &[u8]) -> Result<Answer, Answer> {
    let cluster = target.cluster()?;
    let NewLeader { broker } = decode(body)?;
    let (topic, index) = partition(cluster, parameters)?;
    let moved = cluster.move_leader(topic, index, broker);
    moved.map_err(|error| Answer::refuse(StatusCode::CONFLICT, Report::new(&error)))?;
    Ok(Answer::json(StatusCode::OK, &NewLeader { broker }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_their_routes_part_by_part() {
        assert_eq!(parameters("/v1/faults/{name}", "/v1/faults/a.b"), Some(vec!["a.b"]));
        for path in ["/v1/faults/", "/v1/faults", "/v1/faults/a/b", "/v1/fault/a", ""] {
            assert_eq!(parameters("/v1/faults/{name}", path), None, "{path}");
        }
        let leader = "/v1/topics/{topic}/partitions/{partition}/leader";
        let found = parameters(leader, "/v1/topics/t/partitions/0/leader");
        assert_eq!(found, Some(vec!["t", "0"]));
    }
}
