//! IncrementalAlterConfigs, key 44, versions 0 and 1 (KIP-339).

use bytes::Bytes;
use curtail_wire::cold::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};

use super::{
    Answer, Call,
    alter_configs::{Altered, alter_all, no_value, refuse},
    text,
};
use crate::{
    controller::Refusal,
    topic_config::{ConfigEdit, ConfigEdits},
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: IncrementalAlterConfigsRequest = call.decode(body)?;
    let done = alter_all(call, &request.resources, request.validate_only);
    let responses = request.resources.iter().zip(done).map(|(resource, done)| {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_message(None);
        match done {
            Ok(()) => response,
            Err((code, reason)) => {
                response.with_error_code(code.0).with_error_message(Some(text(&reason)))
            }
        }
    });
    let response = IncrementalAlterConfigsResponse::default().with_responses(responses.collect());
    call.answer(&response, out)
}

impl Altered for AlterConfigsResource {
    fn resource(&self) -> (i8, &str) {
        (self.resource_type, &self.resource_name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.iter().map(|config| &*config.name)
    }

    fn edits(&self) -> Result<ConfigEdits, Refusal> {
        let edits = self.configs.iter().map(|config| Ok((config.name.to_string(), edit(config)?)));
        Ok(ConfigEdits { replaces: false, edits: edits.collect::<Result<_, Refusal>>()? })
    }
}

fn edit(config: &AlterableConfig) -> Result<ConfigEdit, Refusal> {
    let value = config.value.as_ref().map(ToString::to_string);
    Ok(match (config.config_operation, value) {
        (1, _) => ConfigEdit::Delete,
        (0, Some(value)) => ConfigEdit::Set(value),
        (2, Some(value)) => ConfigEdit::Append(value),
        (3, Some(value)) => ConfigEdit::Subtract(value),
        (0 | 2 | 3, None) => return no_value(&config.name),
        (operation, _) => return refuse(&format!("There is no operation {operation}.")),
    })
}
