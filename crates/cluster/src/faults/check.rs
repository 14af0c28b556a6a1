//! What the types of a fault permit and the cluster cannot do.

use curtail_wire::ApiKey;

use super::{
    Cut, Delay, Disconnect, Fault, FaultError, InjectedError, SlowDisk, Throttle, Time, When,
};

impl Fault {
    /// Checks what the types permit and the cluster cannot do.
    pub(super) fn check(&self) -> Result<(), FaultError> {
        let invalid = |reason: String| Err(FaultError::Invalid(reason));
        if let Some(rate) = self.requests().and_then(|requests| requests.rate)
            && !(0.0..=1.0).contains(&rate)
        {
            return invalid(format!("rate: {rate} is not between 0 and 1"));
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
            Self::Disconnect(Disconnect { when: When::Request, after_bytes: 1.., .. }) => invalid(
                "after_bytes: a connection that closes at the request writes nothing".into(),
            ),
            Self::Throttle(Throttle { bytes_per_second: 0, .. }) => {
                invalid("bytes_per_second: 0 transfers nothing; give at least 1".into())
            }
            Self::Cut(Cut { between: [one, other] }) if one == other => {
                invalid("between: two different brokers are needed".into())
            }
            _ => Ok(()),
        }
    }
}

/// What the errors of an API's response belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorsOf {
    Requests,
    Topics,
    Partitions,
}

/// The APIs whose errors can be injected.
const ERRORS: &[(ApiKey, ErrorsOf)] = &[
    (ApiKey::PRODUCE, ErrorsOf::Partitions),
    (ApiKey::FETCH, ErrorsOf::Partitions),
    (ApiKey::LIST_OFFSETS, ErrorsOf::Partitions),
    (ApiKey::METADATA, ErrorsOf::Topics),
    (ApiKey::OFFSET_COMMIT, ErrorsOf::Partitions),
    // Of the group: up to version 7 there is one, later versions have many.
    (ApiKey::OFFSET_FETCH, ErrorsOf::Requests),
    (ApiKey::FIND_COORDINATOR, ErrorsOf::Requests),
    (ApiKey::JOIN_GROUP, ErrorsOf::Requests),
    (ApiKey::HEARTBEAT, ErrorsOf::Requests),
    (ApiKey::LEAVE_GROUP, ErrorsOf::Requests),
    (ApiKey::SYNC_GROUP, ErrorsOf::Requests),
    (ApiKey::CREATE_TOPICS, ErrorsOf::Topics),
    (ApiKey::DELETE_TOPICS, ErrorsOf::Topics),
    (ApiKey::DELETE_RECORDS, ErrorsOf::Partitions),
    (ApiKey::INIT_PRODUCER_ID, ErrorsOf::Requests),
    (ApiKey::OFFSET_FOR_LEADER_EPOCH, ErrorsOf::Partitions),
    // From clients, up to version 3; later versions are for brokers.
    (ApiKey::ADD_PARTITIONS_TO_TXN, ErrorsOf::Partitions),
    (ApiKey::ADD_OFFSETS_TO_TXN, ErrorsOf::Requests),
    (ApiKey::END_TXN, ErrorsOf::Requests),
    (ApiKey::TXN_OFFSET_COMMIT, ErrorsOf::Partitions),
    (ApiKey::CREATE_PARTITIONS, ErrorsOf::Topics),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, ErrorsOf::Requests),
];

impl InjectedError {
    fn check(&self) -> Result<(), FaultError> {
        let invalid = |reason: String| Err(FaultError::Invalid(reason));
        let Some(api) = self.requests.api else {
            return invalid("requests.api: an error needs an API".into());
        };
        let name = api.name();
        let Some((_, of)) = ERRORS.iter().find(|(known, _)| *known == api) else {
            let known: Vec<_> = ERRORS.iter().map(|(api, _)| api.name()).collect();
            let known = known.join(", ");
            return invalid(format!(
                "requests.api: errors of {name} cannot be injected, only of {known}"
            ));
        };
        if self.code.is_none() {
            return invalid("code: NONE is no error".into());
        }
        if self.topic.is_some() && *of == ErrorsOf::Requests {
            return invalid(format!("topic: responses to {name} have no errors of topics"));
        }
        if self.partition.is_some() && *of != ErrorsOf::Partitions {
            return invalid(format!("partition: responses to {name} have no errors of partitions"));
        }
        if self.partition.is_some() && self.topic.is_none() {
            return invalid("partition: its topic is needed".into());
        }
        Ok(())
    }
}
