//! Requests of AddRaftVoter. Version 1 has the moment of the response.

use super::{Fields, write_list};
use crate::{DecodeError, Reader, Uuid, Writer};

/// A request to add a voter to the quorum of controllers, versions 0 and 1 (KIP-853).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddRaftVoterRequest {
    /// Id of the cluster.
    pub cluster_id: Option<String>,
    /// How long the leader may wait, in milliseconds.
    pub timeout_ms: i32,
    /// Id of the controller.
    pub voter_id: i32,
    /// Id of its log directory.
    pub voter_directory_id: Uuid,
    /// Listeners of the voter.
    pub listeners: Vec<VoterListener>,
    /// Whether the response follows once the voters are committed (version 1; always before).
    pub ack_when_committed: bool,
}

/// One listener of a voter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterListener {
    /// Name of the listener.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Default for AddRaftVoterRequest {
    fn default() -> Self {
        Self {
            cluster_id: None,
            timeout_ms: 0,
            voter_id: 0,
            voter_directory_id: Uuid::ZERO,
            listeners: Vec::new(),
            ack_when_committed: true,
        }
    }
}

impl Fields for AddRaftVoterRequest {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let cluster_id = r.nullable_string("cluster_id")?.map(str::to_owned);
        let timeout_ms = r.i32("timeout_ms")?;
        let voter_id = r.i32("voter_id")?;
        let voter_directory_id = r.uuid("voter_directory_id")?;
        let listeners = r.array_of(5, "listeners", |r| VoterListener::read(version, r))?;
        let ack_when_committed = version < 1 || r.bool("ack_when_committed")?;
        r.skip_tagged("AddRaftVoter request")?;
        Ok(Self {
            cluster_id,
            timeout_ms,
            voter_id,
            voter_directory_id,
            listeners,
            ack_when_committed,
        })
    }

    fn write(&self, version: i16, w: &mut Writer) {
        w.nullable_string(self.cluster_id.as_deref());
        w.i32(self.timeout_ms);
        w.i32(self.voter_id);
        w.uuid(self.voter_directory_id);
        write_list(version, &self.listeners, w);
        if version >= 1 {
            w.bool(self.ack_when_committed);
        }
        w.no_tags();
    }
}

impl Fields for VoterListener {
    fn read(_: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = r.string("name")?.to_owned();
        let host = r.string("host")?.to_owned();
        let port = r.u16("port")?;
        r.skip_tagged("listeners")?;
        Ok(Self { name, host, port })
    }

    fn write(&self, _: i16, w: &mut Writer) {
        w.string(&self.name);
        w.string(&self.host);
        w.u16(self.port);
        w.no_tags();
    }
}
