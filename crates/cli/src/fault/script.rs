//! A script of faults: steps at times, as YAML.

#[cfg(test)]
mod tests;

use std::{fs, path::Path, pin::Pin, time::Duration};

use curtail_cluster::{ActiveFault, Fault, Injection, Time};
use hyper::Method;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::{
    Control, change_broker, expire_fetch_sessions, expire_producer_ids, lift_if_present,
    move_coordinator, move_leader,
};
use crate::{control::routes::NewCoordinator, failure::Failure, output, signals};

/// A script, as in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    /// Seed of the first fault; the next ones take the next numbers.
    seed: Option<u64>,
    steps: Vec<Step>,
}

/// A step: exactly one action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Step {
    /// Since the start of the run.
    at: Time,
    /// Name of the fault.
    name: Option<String>,
    /// How long the fault stays.
    #[serde(rename = "for")]
    stays: Option<Time>,
    fault: Option<Fault>,
    lift: Option<String>,
    kill: Option<i32>,
    stop: Option<i32>,
    restart: Option<i32>,
    expire_fetch_sessions: Option<i32>,
    expire_producer_ids: Option<Partition>,
    move_leader: Option<Leader>,
    move_coordinator: Option<NewCoordinator>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partition {
    topic: String,
    partition: i32,
}

/// A partition and its next leader.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Leader {
    topic: String,
    partition: i32,
    broker: i32,
}

/// What happens at a time.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Inject(Box<Injection>),
    Lift(String),
    Kill(i32),
    Stop(i32),
    Restart(i32),
    ExpireFetchSessions(i32),
    ExpireProducerIds(Partition),
    MoveLeader(Leader),
    MoveCoordinator(NewCoordinator),
}

/// An action and its time since the start.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    at: Duration,
    action: Action,
}

/// Reads a script and returns its events in the order of their times.
fn read(text: &str) -> Result<Vec<Event>, String> {
    let script: Script = serde_saphyr::from_str(text).map_err(|error| {
        let said = error.to_string();
        let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no YAML").trim();
        first.strip_prefix("error: ").unwrap_or(first).to_owned()
    })?;
    let mut events = Vec::new();
    let mut seed = script.seed;
    for (step, number) in script.steps.into_iter().zip(1..) {
        let failed = |reason: String| format!("step {number}: {reason}");
        let at = fixed(step.at).map_err(|reason| failed(format!("at: {reason}")))?;
        let stays = step.stays.map(fixed).transpose();
        let stays = stays.map_err(|reason| failed(format!("for: {reason}")))?;
        let name = step.name.clone();
        let action = step.action(&mut seed, number).map_err(failed)?;
        if let Some(stays) = stays {
            let Action::Inject(injection) = &action else {
                return Err(failed("for: only a fault stays for a time".into()));
            };
            let name = injection.name.clone().unwrap_or_default();
            events.push(Event { at: at + stays, action: Action::Lift(name) });
        }
        if name.is_some() && !matches!(action, Action::Inject(_)) {
            return Err(failed("name: only a fault has a name".into()));
        }
        events.push(Event { at, action });
    }
    check_names(&events)?;
    // Stable: steps of one time keep their order, and faults end before others begin.
    events.sort_by_key(|event| (event.at, !matches!(event.action, Action::Lift(_))));
    Ok(events)
}

fn fixed(time: Time) -> Result<Duration, String> {
    match time {
        Time::Fixed(time) => Ok(time),
        other => Err(format!("{other} is no fixed time")),
    }
}

fn check_names(events: &[Event]) -> Result<(), String> {
    let injected = |name: &str| {
        let named = |event: &&Event| matches!(&event.action, Action::Inject(fault) if fault.name.as_deref() == Some(name));
        events.iter().any(|event| named(&event))
    };
    let unknown = events.iter().find_map(|event| match &event.action {
        Action::Lift(name) if !injected(name) => Some(name),
        _ => None,
    });
    unknown.map_or(Ok(()), |name| Err(format!("lift: no fault of the script is named '{name}'")))
}

impl Step {
    fn action(self, seed: &mut Option<u64>, number: usize) -> Result<Action, String> {
        let name = self.name.unwrap_or_else(|| format!("step-{number}"));
        let inject = |fault| {
            let injection = Injection { name: Some(name), seed: *seed, fault };
            *seed = seed.map(|seed| seed.wrapping_add(1));
            Action::Inject(Box::new(injection))
        };
        let given = [
            self.fault.map(inject),
            self.lift.map(Action::Lift),
            self.kill.map(Action::Kill),
            self.stop.map(Action::Stop),
            self.restart.map(Action::Restart),
            self.expire_fetch_sessions.map(Action::ExpireFetchSessions),
            self.expire_producer_ids.map(Action::ExpireProducerIds),
            self.move_leader.map(Action::MoveLeader),
            self.move_coordinator.map(Action::MoveCoordinator),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(Action::MoveCoordinator(new)), None) => match new.key() {
                Ok(_) => Ok(Action::MoveCoordinator(new)),
                Err(reason) => Err(format!("move-coordinator: {reason}")),
            },
            (Some(action), None) => Ok(action),
            (None, _) => Err(format!("an action is missing: {ACTIONS}")),
            (Some(_), Some(_)) => Err(format!("only one action is possible: {ACTIONS}")),
        }
    }
}

const ACTIONS: &str = "fault, lift, kill, stop, restart, expire-fetch-sessions, expire-producer-ids, move-leader or \
                       move-coordinator";

/// Runs the script in a file.
pub(super) async fn run(control: Control, file: &Path) -> Result<(), Failure> {
    let failed = |reason: String| Failure::new(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let events = read(&text).map_err(failed)?;
    let mut present = Vec::new();
    let end = Box::pin(signals::end_or_hang_up().map_err(|error| failed(error.to_string()))?);
    let done = play(control, events, &mut present, end).await;
    let mut failures: Vec<Failure> = done.err().into_iter().collect();
    for name in present {
        if let Err(failure) = lift_if_present(control, &name).await {
            failures.push(failure);
        }
    }
    Failure::all(failures)
}

/// Performs the events at their times, until `end`. `present` has the names of the script's faults.
async fn play(
    control: Control,
    events: Vec<Event>,
    present: &mut Vec<String>,
    mut end: Pin<Box<impl Future<Output = ()>>>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    for Event { at, action } in events {
        // Only here: after an interrupted request the script would not know whether to lift its fault.
        tokio::select! {
            biased;
            () = &mut end => return Ok(()),
            () = sleep_until(begun + at) => {}
        }
        let told = match action {
            Action::Inject(injection) => {
                let added: ActiveFault =
                    control.send_with(Method::POST, "/v1/faults", &*injection).await?;
                present.push(added.name.clone());
                format!("{} {} (seed {})", added.fault.kind(), added.name, added.seed)
            }
            Action::Lift(name) => {
                lift_if_present(control, &name).await?;
                present.retain(|present| *present != name);
                format!("lift {name}")
            }
            Action::Kill(broker) => on(control, broker, "kill").await?,
            Action::Stop(broker) => on(control, broker, "stop").await?,
            Action::Restart(broker) => on(control, broker, "restart").await?,
            Action::ExpireFetchSessions(broker) => {
                let expired = expire_fetch_sessions(control, broker).await?;
                format!("expire-fetch-sessions {broker} ({expired})")
            }
            Action::ExpireProducerIds(Partition { topic, partition }) => {
                let expired = expire_producer_ids(control, &topic, partition).await?;
                format!("expire-producer-ids {topic}-{partition} ({expired})")
            }
            Action::MoveLeader(Leader { topic, partition, broker }) => {
                move_leader(control, &topic, partition, broker).await?;
                format!("move-leader {topic}-{partition} to {broker}")
            }
            Action::MoveCoordinator(new) => {
                move_coordinator(control, &new).await?;
                let key = new.group.or(new.transactional_id).unwrap_or_default();
                format!("move-coordinator {key} to {}", new.broker)
            }
        };
        output::line(format_args!("{:>9.3}s  {told}", begun.elapsed().as_secs_f64()))?;
    }
    Ok(())
}

async fn on(control: Control, broker: i32, action: &str) -> Result<String, Failure> {
    change_broker(control, broker, action).await?;
    Ok(format!("{action} {broker}"))
}
