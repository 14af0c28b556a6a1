//! Requests as scripts see them, and what a script may do with one.

use bytes::Bytes;
use curtail::ErrorCode;
use curtail_wire::{
    ApiKey, Writer,
    cold::{self, Decodable, Encodable, Message},
    fetch::FetchResponse,
    header::{encode_response_header, response_body},
    metadata::MetadataResponse,
    produce::{
        LeaderIdAndEpoch, ProducePartitionResponse, ProduceRequest, ProduceResponse,
        ProduceTopicResponse,
    },
    records::Batch,
};

use super::Gate;

/// A client's request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) broker: i32,
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) body: Bytes,
}

/// The fate of a request.
pub(crate) enum Step {
    /// It reaches the broker, and the response the client.
    Pass,
    /// It reaches the broker.
    PassThen(Reply),
    /// The broker does not see it; the client gets this frame.
    Answer(Vec<u8>),
    /// The broker does not see it, and the client gets no response, nor one to a later request of the connection.
    Swallow,
    /// The broker does not see it, and the connection closes.
    Cut,
    /// Later requests of the connection wait, too.
    Hold(Gate, Box<Step>),
}

/// The fate of a broker's response.
pub(crate) enum Reply {
    Send,
    Edit(Box<dyn FnOnce(Bytes) -> Vec<u8> + Send>),
    /// It is lost: the connection closes.
    Cut,
    /// Later responses of the connection wait, too.
    Hold(Gate),
}

impl Request {
    /// A batch of a Produce request by partition.
    pub(crate) fn batches(&self) -> Vec<(i32, Batch)> {
        if self.api != ApiKey::PRODUCE {
            return Vec::new();
        }
        let request = ProduceRequest::decode(self.version, &self.body).unwrap();
        let partitions = request.topics.into_iter().flat_map(|topic| topic.partitions);
        // franz-go sends a partition without records when its batch has expired before the write.
        let batches = partitions.filter_map(|p| Some((p.index, p.records?)));
        batches.map(|(index, records)| (index, Batch::parse(records).unwrap())).collect()
    }

    /// Whether this is a Produce request with a batch for the partition.
    pub(crate) fn produces_to(&self, index: i32) -> bool {
        self.batches().iter().any(|(at, _)| *at == index)
    }

    /// The message of an API that `cold` decodes.
    pub(crate) fn message<T: Decodable + Message>(&self) -> T {
        cold::decode_request(self.version, self.body.clone()).unwrap()
    }

    /// Refuses every batch of a Produce request before the broker sees it.
    pub(crate) fn refuse(&self, error: ErrorCode) -> Step {
        self.refuse_with(error, None)
    }

    /// As [`Self::refuse`], with a hint at the leader (KIP-951).
    pub(crate) fn refuse_with(&self, error: ErrorCode, hint: Option<LeaderIdAndEpoch>) -> Step {
        self.answer_produce(|index| ProducePartitionResponse {
            index,
            error,
            current_leader: hint,
            ..ProducePartitionResponse::default()
        })
    }

    /// Acknowledges every batch of a Produce request, and the broker does not see it.
    pub(crate) fn pretend_written(&self, base_offset: i64) -> Step {
        self.answer_produce(|index| ProducePartitionResponse {
            index,
            base_offset,
            ..ProducePartitionResponse::default()
        })
    }

    fn answer_produce(&self, outcome: impl Fn(i32) -> ProducePartitionResponse) -> Step {
        let request = ProduceRequest::decode(self.version, &self.body).unwrap();
        let topics = request.topics.into_iter().map(|topic| ProduceTopicResponse {
            partitions: topic.partitions.iter().map(|p| outcome(p.index)).collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        });
        let response = ProduceResponse { topics: topics.collect(), ..ProduceResponse::default() };
        Step::Answer(self.frame(|w| response.encode(self.version, w)))
    }

    /// Responds with a message of an API that `cold` encodes; the broker does not see the request.
    pub(crate) fn answer<T: Encodable + Message>(&self, response: &T) -> Step {
        let (api, version) = (self.api, self.version);
        Step::Answer(cold::encode_response(api, version, self.correlation_id, response).unwrap())
    }

    /// Passes the request on and changes the response.
    pub(crate) fn edit<T: Decodable + Encodable + Message>(
        &self,
        change: impl FnOnce(&mut T) + Send + 'static,
    ) -> Step {
        let request = self.clone();
        self.passed_then(move |body| {
            let mut response: T = cold::decode_response(request.version, body).unwrap();
            change(&mut response);
            let (api, version) = (request.api, request.version);
            cold::encode_response(api, version, request.correlation_id, &response).unwrap()
        })
    }

    pub(crate) fn edit_metadata(
        &self,
        change: impl FnOnce(&mut MetadataResponse) + Send + 'static,
    ) -> Step {
        let request = self.clone();
        self.passed_then(move |body| {
            let mut response = MetadataResponse::decode(request.version, &body).unwrap();
            change(&mut response);
            request.frame(|w| response.encode(request.version, w))
        })
    }

    pub(crate) fn edit_fetch(
        &self,
        change: impl FnOnce(&mut FetchResponse) + Send + 'static,
    ) -> Step {
        let request = self.clone();
        self.passed_then(move |body| {
            let mut response = FetchResponse::decode(request.version, &body).unwrap();
            change(&mut response);
            request.frame(|w| response.encode(request.version, w))
        })
    }

    pub(crate) fn edit_produce(
        &self,
        change: impl FnOnce(&mut ProduceResponse) + Send + 'static,
    ) -> Step {
        let request = self.clone();
        self.passed_then(move |body| {
            let mut response = ProduceResponse::decode(request.version, &body).unwrap();
            change(&mut response);
            request.frame(|w| response.encode(request.version, w))
        })
    }

    fn passed_then(&self, encode: impl FnOnce(Bytes) -> Vec<u8> + Send + 'static) -> Step {
        let (api, version) = (self.api, self.version);
        Step::PassThen(Reply::Edit(Box::new(move |frame| {
            encode(response_body(&frame, api, version).unwrap())
        })))
    }

    fn frame(&self, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::with_capacity(256);
        w.i32(0);
        encode_response_header(self.api, self.version, self.correlation_id, &mut w);
        encode(&mut w);
        let length = w.len() - 4;
        w.patch_i32(0, length as i32);
        w.into_vec()
    }
}
