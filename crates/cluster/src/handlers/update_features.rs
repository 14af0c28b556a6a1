//! UpdateFeatures, key 57, versions 0 to 2. Features do not change while the cluster runs, so only an
//! update to the present level succeeds; others are refused with INVALID_UPDATE_VERSION. Of several
//! updates, all succeed or none.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        UpdateFeaturesRequest, UpdateFeaturesResponse, update_features_request::FeatureUpdateKey,
        update_features_response::UpdatableFeatureResult,
    },
};

use super::{Answer, Call, api_versions, text};
use crate::acl::{Operation, Resource};

/// First version without a result for each feature.
const WITHOUT_RESULTS: i16 = 2;
/// Upgrade, safe and unsafe downgrade.
const UPGRADE_TYPES: std::ops::RangeInclusive<i8> = 1..=3;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: UpdateFeaturesRequest = call.decode(body)?;
    let mut response = UpdateFeaturesResponse::default();
    if let Err(code) = call.require(Operation::Alter, Resource::Cluster) {
        response.error_code = code.0;
        return call.answer(&response, out);
    }
    let mut updates = request.feature_updates.iter();
    if let Some(reason) = updates.find_map(|update| refusal(call, update)) {
        response.error_code = ErrorCode::INVALID_UPDATE_VERSION.0;
        response.error_message = Some(text(&format!(
            "The update failed for all features since the following feature had an error: {reason}"
        )));
        return call.answer(&response, out);
    }
    if call.version() < WITHOUT_RESULTS {
        let updated = |update: &FeatureUpdateKey| {
            UpdatableFeatureResult::default().with_feature(update.feature.clone())
        };
        response.results = request.feature_updates.iter().map(updated).collect();
    }
    call.answer(&response, out)
}

/// Returns why an update is refused, if it is.
fn refusal(call: &Call<'_>, update: &FeatureUpdateKey) -> Option<String> {
    let name = update.feature.as_str();
    let wanted = update.max_version_level;
    let levels = api_versions::levels(call);
    let reason = match levels.iter().find(|feature| feature.name == name) {
        _ if !UPGRADE_TYPES.contains(&update.upgrade_type) => {
            "The controller does not support the given upgrade type.".to_owned()
        }
        _ if wanted < 0 => "A feature version cannot be less than 0.".to_owned(),
        None => "The controller does not support this feature.".to_owned(),
        Some(feature) if wanted > feature.newest => {
            format!("The controller supports versions 0-{}.", feature.newest)
        }
        Some(feature) if wanted != feature.level => format!(
            "The embedded cluster has level {} and does not change it while it runs.",
            feature.level
        ),
        Some(_) => return None,
    };
    Some(format!("Invalid update version {wanted} for feature {name}. {reason}"))
}
