//! DeleteTopics, key 20, versions 1 to 6: deletes topics, from version 6 on by name or by id.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode, Uuid,
    cold::messages::{
        DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
        delete_topics_response::DeletableTopicResult,
    },
};

use super::{Answer, Call, Item, text};
use crate::{
    acl::{Operation, Resource},
    image::TopicImage,
};

/// First version with topic ids.
const TOPIC_IDS: i16 = 6;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DeleteTopicsRequest = call.decode(body)?;
    let by_name = request.topic_names.iter().map(|name| (Some(name.clone()), Uuid::ZERO));
    let by_either =
        request.topics.iter().map(|topic| (topic.name.clone(), Uuid(topic.topic_id.into_bytes())));
    call.concerns(request.topic_names.len() + request.topics.len());
    let asked: Vec<(Option<TopicName>, Uuid)> = by_name.chain(by_either).collect();
    let mut times: BTreeMap<&(Option<TopicName>, Uuid), usize> = BTreeMap::new();
    for topic in &asked {
        *times.entry(topic).or_default() += 1;
    }
    // A topic's first entry removes its count, so that a repeated topic gets one result.
    let results = asked.iter().filter_map(|topic| match times.remove(topic)? {
        1 => Some(delete(call, topic.0.clone(), topic.1)),
        _ => Some(twice(call, topic.0.clone(), topic.1)),
    });
    let results = results.collect();
    call.answer(&DeleteTopicsResponse::default().with_responses(results), out)
}

/// Refuses a topic that the request names more than once, whether or not it exists.
fn twice(call: &Call<'_>, name: Option<TopicName>, id: Uuid) -> DeletableTopicResult {
    call.concerns(0);
    let result = DeletableTopicResult::default()
        .with_name(name)
        .with_error_code(ErrorCode::INVALID_REQUEST.0);
    let result = match call.version() >= 5 {
        true => result.with_error_message(Some(text("Duplicate topic name."))),
        false => result,
    };
    match call.version() >= TOPIC_IDS {
        true => result.with_topic_id(uuid::Uuid::from_bytes(id.0)),
        false => result,
    }
}

fn delete(call: &Call<'_>, name: Option<TopicName>, id: Uuid) -> DeletableTopicResult {
    let image = call.broker.controller.image();
    let topic = match &name {
        Some(name) => image.topic(&name.0).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        None => image.topic_by_id(&id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
    };
    let named = name.as_ref().map(|name| name.0.to_string());
    let named = named.or_else(|| topic.ok().map(|topic| topic.name.to_string()));
    let allowed = match named {
        Some(name) => {
            let allowed = call.require(Operation::Delete, Resource::Topic(&name));
            allowed.and_then(|()| call.injected(Item::Topic(&name)))
        }
        None => {
            call.concerns(0);
            Ok(())
        }
    };
    let code = match allowed.and(topic) {
        Ok(topic) => match call.broker.controller.delete_topic(topic.id) {
            Ok(true) => ErrorCode::NONE,
            Ok(false) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Err((code, _)) => code,
        },
        Err(code) => code,
    };
    // A client that may not describe the topic receives neither its name nor its id.
    let shown =
        |topic: &&Arc<TopicImage>| call.may(Operation::Describe, Resource::Topic(&topic.name));
    let known = topic.ok().filter(shown);
    let name = name.or_else(|| known.map(|topic| TopicName(text(&topic.name))));
    let result = DeletableTopicResult::default().with_name(name).with_error_code(code.0);
    let result = match (code.is_error(), call.version() >= 5) {
        (true, true) => result.with_error_message(Some(text(code.message()))),
        _ => result,
    };
    match call.version() >= TOPIC_IDS {
        true => {
            let id = known.map_or(id, |topic| topic.id);
            result.with_topic_id(uuid::Uuid::from_bytes(id.0))
        }
        false => result,
    }
}
