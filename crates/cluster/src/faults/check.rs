//! What the types of a fault permit and the cluster cannot do.

use curtail_wire::ApiKey;

use super::{
    Cut, Delay, Disconnect, Fault, FaultError, InjectedError, Requests, Sender, SlowDisk, Throttle,
    Time, When, WrongLeader,
};

fn invalid(reason: impl Into<String>) -> Result<(), FaultError> {
    Err(FaultError::Invalid(reason.into()))
}

impl Fault {
    /// Checks what the types permit and the cluster cannot do.
    pub(super) fn check(&self) -> Result<(), FaultError> {
        if let Some(requests) = self.requests() {
            requests.check(self.apis())?;
        }
        match self {
            Self::Error(error) => error.check(),
            Self::Delay(Delay { time: Time::Uniform(from, to), .. })
            | Self::SlowDisk(SlowDisk { time: Time::Uniform(from, to), .. })
                if from > to =>
            {
                invalid(format!(
                    "time: {} is empty; give the shorter time first",
                    Time::Uniform(*from, *to)
                ))
            }
            Self::Disconnect(Disconnect { when: When::Request, after_bytes: 1.., .. }) => {
                invalid("after_bytes: a connection that closes at the request writes nothing")
            }
            Self::Disconnect(Disconnect { when: When::Request, requests, .. })
                if requests.topic.is_some() =>
            {
                invalid("requests.topic: a connection that closes at the request knows no topics")
            }
            Self::WrongLeader(WrongLeader {
                leader: None, epoch_shift: 0, address: None, ..
            }) => invalid("leader: nothing is wrong; give leader, epoch_shift or address"),
            Self::Throttle(Throttle { bytes_per_second: 0, .. }) => {
                invalid("bytes_per_second: 0 transfers nothing; give at least 1")
            }
            Self::Cut(Cut { between: [one, other] }) if one == other => {
                invalid("between: two different brokers are needed")
            }
            _ => Ok(()),
        }
    }

    /// Checks that a proxy can do it: it sees the connections of clients, and neither the brokers' processes nor
    /// their disks nor the connections between them.
    pub(crate) fn check_for_proxy(&self) -> Result<(), FaultError> {
        let instead = match self {
            Self::Freeze(_) => "; cut-clients stops all bytes between clients and a broker",
            Self::CutOff(_) | Self::Cut(_) => "; cut-clients disconnects a broker from clients",
            Self::SlowDisk(_) | Self::FullDisk(_) => "; delay and error affect its responses",
            Self::FreezeMetadata(_) | Self::DelayMetadata(_) => "",
            _ => return self.check_senders(),
        };
        invalid(format!("{}: a proxy cannot do this to a broker{instead}", self.kind()))
    }

    fn check_senders(&self) -> Result<(), FaultError> {
        let from = match self {
            Self::Throttle(throttle) => throttle.from,
            _ => self.requests().map_or(Sender::Clients, |requests| requests.from),
        };
        match from {
            Sender::Clients => Ok(()),
            Sender::Brokers | Sender::All => {
                invalid(format!("from: {from}: a proxy sees the requests of clients only"))
            }
        }
    }

    /// The APIs that the kind is possible for; every API if empty.
    fn apis(&self) -> &'static [ApiKey] {
        match self {
            Self::Corrupt(_) => &[ApiKey::FETCH],
            Self::WrongLeader(_) => &[ApiKey::PRODUCE, ApiKey::FETCH],
            _ => &[],
        }
    }
}

/// The parts of an API's requests that get their own error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    Requests,
    Topics,
    Partitions,
}

/// The APIs whose errors can be injected, and the parts that their handlers ask for.
const PARTS: &[(ApiKey, Parts)] = &[
    (ApiKey::PRODUCE, Parts::Partitions),
    (ApiKey::FETCH, Parts::Partitions),
    (ApiKey::LIST_OFFSETS, Parts::Partitions),
    (ApiKey::METADATA, Parts::Topics),
    (ApiKey::OFFSET_COMMIT, Parts::Partitions),
    // Of the group: up to version 7 there is one, later versions have many.
    (ApiKey::OFFSET_FETCH, Parts::Requests),
    (ApiKey::FIND_COORDINATOR, Parts::Requests),
    (ApiKey::JOIN_GROUP, Parts::Requests),
    (ApiKey::HEARTBEAT, Parts::Requests),
    (ApiKey::LEAVE_GROUP, Parts::Requests),
    (ApiKey::SYNC_GROUP, Parts::Requests),
    (ApiKey::CREATE_TOPICS, Parts::Topics),
    (ApiKey::DELETE_TOPICS, Parts::Topics),
    (ApiKey::DELETE_RECORDS, Parts::Partitions),
    (ApiKey::INIT_PRODUCER_ID, Parts::Requests),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, Parts::Partitions),
    // From clients, up to version 3; later versions are for brokers.
    (ApiKey::ADD_PARTITIONS_TO_TXN, Parts::Partitions),
    (ApiKey::ADD_OFFSETS_TO_TXN, Parts::Requests),
    (ApiKey::END_TXN, Parts::Requests),
    (ApiKey::TXN_OFFSET_COMMIT, Parts::Partitions),
    (ApiKey::CREATE_PARTITIONS, Parts::Topics),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, Parts::Requests),
    (ApiKey::STREAMS_GROUP_HEARTBEAT, Parts::Requests),
];

fn parts_of(api: ApiKey) -> Option<Parts> {
    PARTS.iter().find(|(known, _)| *known == api).map(|(_, parts)| *parts)
}

/// Returns whether errors of the API can be injected.
pub(crate) fn has_errors(api: ApiKey) -> bool {
    parts_of(api).is_some()
}

/// The names of the APIs that have such parts.
fn apis(have: impl Fn(Parts) -> bool) -> String {
    let having = PARTS.iter().filter(|(_, parts)| have(*parts));
    having.map(|(api, _)| api.name()).collect::<Vec<_>>().join(", ")
}

impl Requests {
    /// `only` has the APIs that the kind is possible for, all of which have parts by partition.
    fn check(&self, only: &[ApiKey]) -> Result<(), FaultError> {
        if let Some(rate) = self.rate.filter(|rate| !(0.0..=1.0).contains(rate)) {
            return invalid(format!("rate: {rate} is not between 0 and 1"));
        }
        if let Some(api) = self.api.filter(|api| !only.is_empty() && !only.contains(api)) {
            let only: Vec<_> = only.iter().map(|api| api.name()).collect();
            let (only, name) = (only.join(" and "), api.name());
            return invalid(format!("requests.api: this fault concerns {only}, not {name}"));
        }
        if self.topic.is_none() {
            return match self.partition {
                Some(_) => invalid("requests.partition: its topic is needed"),
                None => Ok(()),
            };
        }
        let Some(api) = self.api.or(only.first().copied()) else {
            return invalid("requests.api: a topic needs an API");
        };
        let name = api.name();
        match parts_of(api) {
            None | Some(Parts::Requests) => invalid(format!(
                "requests.topic: faults of {name} are not by topic, only those of {}",
                apis(|parts| parts != Parts::Requests)
            )),
            Some(Parts::Topics) if self.partition.is_some() => invalid(format!(
                "requests.partition: faults of {name} are not by partition, only those of {}",
                apis(|parts| parts == Parts::Partitions)
            )),
            Some(Parts::Topics | Parts::Partitions) => Ok(()),
        }
    }
}

impl InjectedError {
    fn check(&self) -> Result<(), FaultError> {
        let Some(api) = self.requests.api else {
            return invalid("requests.api: an error needs an API");
        };
        if parts_of(api).is_none() {
            return invalid(format!(
                "requests.api: errors of {} cannot be injected, only of {}",
                api.name(),
                apis(|_| true)
            ));
        }
        match self.code.is_none() {
            true => invalid("code: NONE is no error"),
            false => Ok(()),
        }
    }
}
