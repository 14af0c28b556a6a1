//! Control records of a Raft quorum's log (KIP-595, KIP-630, KIP-853), as the JSON that Kafka makes of them.

use bytes::Bytes;
use curtail_wire::{
    Uuid,
    cold::{
        ColdError, Decodable, Message, decode,
        messages::{
            KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord,
            VotersRecord, leader_change_message, voters_record,
        },
    },
};
use serde_json::Value;

/// Type of a [`LeaderChangeMessage`].
pub(super) const LEADER_CHANGE: i16 = 2;
const SNAPSHOT_HEADER: i16 = 3;
const SNAPSHOT_FOOTER: i16 = 4;
const KRAFT_VERSION: i16 = 5;
const KRAFT_VOTERS: i16 = 6;

/// Name and contents of a control record by its type; `None` for a type that is not one of a quorum.
pub(super) fn describe(kind: i16, value: &Bytes) -> Option<Result<String, ColdError>> {
    // The version is the first field of each.
    let version = value.first_chunk().map_or(-1, |bytes| i16::from_be_bytes(*bytes));
    let value = value.clone();
    let (name, fields) = match kind {
        LEADER_CHANGE => ("LeaderChange:", fields(version, value, leader_change)),
        SNAPSHOT_HEADER => ("SnapshotHeader", fields(version, value, snapshot_header)),
        SNAPSHOT_FOOTER => ("SnapshotFooter", fields(version, value, snapshot_footer)),
        KRAFT_VERSION => ("KRaftVersion", fields(version, value, kraft_version)),
        KRAFT_VOTERS => ("KRaftVoters", fields(version, value, kraft_voters)),
        _ => return None,
    };
    Some(fields.map(|fields| format!("{name} {{\"version\":{version}{fields}}}")))
}

fn fields<T: Decodable + Message>(
    version: i16,
    value: Bytes,
    show: fn(&T) -> String,
) -> Result<String, ColdError> {
    Ok(show(&decode(version, value)?))
}

fn leader_change(message: &LeaderChangeMessage) -> String {
    let voter = |voter: &leader_change_message::Voter| {
        let directory = match message.version {
            0 => String::new(),
            _ => format!(",\"voterDirectoryId\":{}", id(voter.voter_directory_id.as_bytes())),
        };
        format!("{{\"voterId\":{}{directory}}}", voter.voter_id)
    };
    format!(
        ",\"leaderId\":{},\"voters\":[{}],\"grantingVoters\":[{}]",
        message.leader_id.0,
        joined(&message.voters, voter),
        joined(&message.granting_voters, voter)
    )
}

fn snapshot_header(header: &SnapshotHeaderRecord) -> String {
    format!(",\"lastContainedLogTimestamp\":{}", header.last_contained_log_timestamp)
}

fn snapshot_footer(_: &SnapshotFooterRecord) -> String {
    String::new()
}

fn kraft_version(record: &KRaftVersionRecord) -> String {
    format!(",\"kRaftVersion\":{}", record.k_raft_version)
}

fn kraft_voters(record: &VotersRecord) -> String {
    let endpoint = |endpoint: &voters_record::Endpoint| {
        let (name, host) = (Value::from(&*endpoint.name), Value::from(&*endpoint.host));
        format!("{{\"name\":{name},\"host\":{host},\"port\":{}}}", endpoint.port)
    };
    let voter = |voter: &voters_record::Voter| {
        format!(
            "{{\"voterId\":{},\"voterDirectoryId\":{},\"endpoints\":[{}],\
             \"kRaftVersionFeature\":{{\"minSupportedVersion\":{},\"maxSupportedVersion\":{}}}}}",
            voter.voter_id.0,
            id(voter.voter_directory_id.as_bytes()),
            joined(&voter.endpoints, endpoint),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version
        )
    };
    format!(",\"voters\":[{}]", joined(&record.voters, voter))
}

fn id(bytes: &[u8; 16]) -> Value {
    Value::from(Uuid(*bytes).to_string())
}

fn joined<T>(all: &[T], one: impl Fn(&T) -> String) -> String {
    all.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use curtail_wire::cold::{Encodable, encode, messages::BrokerId};

    use super::*;

    fn described<T: Encodable + Message>(kind: i16, version: i16, message: &T) -> String {
        describe(kind, &encode(version, message).unwrap()).unwrap().unwrap()
    }

    /// The texts are those of Kafka's JSON converters for these messages.
    #[test]
    fn records_of_a_quorum_are_json() {
        let directory = uuid::Uuid::from_bytes([1; 16]);
        let voter = leader_change_message::Voter::default()
            .with_voter_id(7)
            .with_voter_directory_id(directory);
        let change = LeaderChangeMessage::default()
            .with_version(1)
            .with_leader_id(BrokerId(7))
            .with_voters(vec![voter]);
        assert_eq!(
            described(LEADER_CHANGE, 1, &change),
            "LeaderChange: {\"version\":1,\"leaderId\":7,\"voters\":[{\"voterId\":7,\
             \"voterDirectoryId\":\"AQEBAQEBAQEBAQEBAQEBAQ\"}],\"grantingVoters\":[]}"
        );
        let endpoint = voters_record::Endpoint::default()
            .with_name("A".to_owned().into())
            .with_host("h".to_owned().into())
            .with_port(9093);
        let feature = voters_record::KRaftVersionFeature::default().with_max_supported_version(1);
        let voter = voters_record::Voter::default()
            .with_voter_id(BrokerId(7))
            .with_voter_directory_id(directory)
            .with_endpoints(vec![endpoint])
            .with_k_raft_version_feature(feature);
        assert_eq!(
            described(KRAFT_VOTERS, 0, &VotersRecord::default().with_voters(vec![voter])),
            "KRaftVoters {\"version\":0,\"voters\":[{\"voterId\":7,\"voterDirectoryId\":\
             \"AQEBAQEBAQEBAQEBAQEBAQ\",\"endpoints\":[{\"name\":\"A\",\"host\":\"h\",\"port\":9093}],\
             \"kRaftVersionFeature\":{\"minSupportedVersion\":0,\"maxSupportedVersion\":1}}]}"
        );
        let version = KRaftVersionRecord::default().with_k_raft_version(1);
        let expected = "KRaftVersion {\"version\":0,\"kRaftVersion\":1}";
        assert_eq!(described(KRAFT_VERSION, 0, &version), expected);
        assert!(describe(7, &Bytes::new()).is_none());
        assert!(describe(LEADER_CHANGE, &Bytes::new()).unwrap().is_err());
    }
}
