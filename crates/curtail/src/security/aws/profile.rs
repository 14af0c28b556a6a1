//! AWS's shared files of settings: `~/.aws/config` and `~/.aws/credentials`.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use zeroize::Zeroizing;

use super::Variables;
use crate::{
    config::{Role, SESSION_NAME},
    security::{AwsCredentials, Secret},
};

/// Settings of a profile.
type Profile = BTreeMap<String, Secret>;

/// The profiles of both files.
#[derive(Debug, Default)]
pub(super) struct Profiles(BTreeMap<String, Profile>);

/// How a profile's credentials are obtained: those of the base, and then roles, each assumed with the one before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) base: Base,
    pub(super) roles: Vec<Role>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Base {
    Keys(AwsCredentials),
    WebIdentity { role: Role, token_file: PathBuf },
    Environment,
    Container,
    Machine,
}

impl Profiles {
    /// Reads the files. A missing file is empty, and so is an inaccessible one that no variable names.
    pub(super) fn read(variables: &Variables) -> Result<Self, String> {
        let mut profiles = Self::default();
        for (variable, name, is_config) in [
            ("AWS_CONFIG_FILE", "config", true),
            ("AWS_SHARED_CREDENTIALS_FILE", "credentials", false),
        ] {
            let named = variables.get(variable).map(PathBuf::from);
            let is_named = named.is_some();
            let Some(path) = named.or_else(|| of_home(variables, name)) else { continue };
            match fs::read_to_string(&path).map(Zeroizing::new) {
                Ok(text) => profiles.add(&text, is_config),
                Err(error) if is_missing(error.kind(), is_named) => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Ok(profiles)
    }

    /// Adds the text of a file. Its settings replace those of the same name.
    ///
    /// Indentation counts as in the AWS CLI: a line that is indented deeper than the setting before it is a part of that
    /// setting. Other SDKs refuse a section whose first setting is indented.
    pub(super) fn add(&mut self, text: &str, is_config: bool) {
        let mut section = None;
        // Indentation of the section's last setting, in characters.
        let mut last = None;
        for indented in text.lines() {
            let line = indented.trim_start_matches([' ', '\t']);
            let indentation = indented.len() - line.len();
            // None of the settings with several lines matters here.
            let continues = last.is_some_and(|last| indentation > last);
            if continues || line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                section = profile_name(name.trim(), is_config);
                last = None;
                continue;
            }
            last = Some(indentation);
            let (Some(section), Some((name, value))) = (&section, line.split_once('=')) else {
                continue;
            };
            let comment =
                [" #", " ;", "\t#", "\t;"].into_iter().filter_map(|s| value.find(s)).min();
            let value = value[..comment.unwrap_or(value.len())].trim();
            let profile = self.0.entry(section.clone()).or_default();
            profile.insert(name.trim().to_ascii_lowercase(), Secret::new(value));
        }
    }

    pub(super) fn region(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(|profile| text(profile, "region"))
    }

    /// Returns the plan of a profile; `None` if neither file has it, or it has no credentials.
    pub(super) fn plan(&self, name: &str) -> Result<Option<Plan>, String> {
        let (mut roles, mut visited, mut name) = (Vec::new(), Vec::new(), name.to_owned());
        loop {
            let Some(profile) = self.0.get(&name) else {
                return match roles.is_empty() {
                    true => Ok(None),
                    false => Err(format!("there is no profile '{name}', a source_profile")),
                };
            };
            let role = role(profile);
            let own = keys(profile).map_err(|why| format!("profile '{name}': {why}"))?;
            // As in the AWS CLI, the keys of a source take precedence over its role. A profile may name itself as the
            // source.
            if let Some(keys) = own.filter(|_| role.is_none() || !roles.is_empty()) {
                return Ok(Some(Plan::new(Base::Keys(keys), roles)));
            }
            if visited.contains(&name) {
                return Err(format!("the source_profile of '{name}' leads back to it"));
            }
            visited.push(name.clone());
            let Some(role) = role else {
                let unsupported = unsupported(profile);
                if roles.is_empty() && unsupported.is_none() {
                    return Ok(None);
                }
                let why = unsupported.unwrap_or("it has no credentials");
                return Err(format!("profile '{name}': {why}"));
            };
            if let Some(file) = text(profile, "web_identity_token_file") {
                let base = Base::WebIdentity { role, token_file: file.into() };
                return Ok(Some(Plan::new(base, roles)));
            }
            roles.push(role);
            let why = match (text(profile, "credential_source"), text(profile, "source_profile")) {
                (None, Some(source)) => {
                    name = source;
                    continue;
                }
                (Some(source), None) => match base(&source) {
                    Some(base) => return Ok(Some(Plan::new(base, roles))),
                    None => "unknown credential_source",
                },
                (None, None) => "role_arn needs source_profile or credential_source",
                (Some(_), Some(_)) => "source_profile and credential_source exclude each other",
            };
            return Err(format!("profile '{name}': {why}"));
        }
    }
}

impl Plan {
    /// `roles` are listed from the profile to its source.
    fn new(base: Base, mut roles: Vec<Role>) -> Self {
        roles.reverse();
        Self { base, roles }
    }
}

/// Returns the name of a profile's section. In `config` all but `default` have a prefix.
fn profile_name(section: &str, is_config: bool) -> Option<String> {
    let name = match is_config {
        true if section == "default" => section,
        true => section.strip_prefix("profile")?.strip_prefix([' ', '\t'])?.trim(),
        false => section,
    };
    Some(name.to_owned())
}

fn of_home(variables: &Variables, name: &str) -> Option<PathBuf> {
    let home = variables.get("HOME").or_else(|| variables.get("USERPROFILE"))?;
    Some(PathBuf::from(home).join(".aws").join(name))
}

/// Whether an error means that there is no file. Services often run with a home folder that is a file or closed to them.
fn is_missing(error: io::ErrorKind, is_named: bool) -> bool {
    match error {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => !is_named,
        _ => false,
    }
}

fn secret(profile: &Profile, name: &str) -> Option<Secret> {
    profile.get(name).filter(|value| !value.reveal().is_empty()).cloned()
}

fn text(profile: &Profile, name: &str) -> Option<String> {
    secret(profile, name).map(|value| value.reveal().to_owned())
}

/// Returns the keys of a profile. An incomplete pair is an error: without it the login would use credentials from elsewhere.
fn keys(profile: &Profile) -> Result<Option<AwsCredentials>, &'static str> {
    match (text(profile, "aws_access_key_id"), secret(profile, "aws_secret_access_key")) {
        (Some(access_key_id), Some(secret_access_key)) => {
            let session_token = secret(profile, "aws_session_token");
            Ok(Some(AwsCredentials { access_key_id, secret_access_key, session_token }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err("aws_access_key_id needs aws_secret_access_key"),
        (None, Some(_)) => Err("aws_secret_access_key needs aws_access_key_id"),
    }
}

/// The source that `credential_source` names.
fn base(credential_source: &str) -> Option<Base> {
    match credential_source {
        "Environment" => Some(Base::Environment),
        "EcsContainer" => Some(Base::Container),
        "Ec2InstanceMetadata" => Some(Base::Machine),
        _ => None,
    }
}

fn role(profile: &Profile) -> Option<Role> {
    Some(Role {
        arn: text(profile, "role_arn")?,
        session_name: text(profile, "role_session_name").unwrap_or_else(|| SESSION_NAME.into()),
        external_id: text(profile, "external_id"),
        with: None,
        sts_region: text(profile, "region"),
    })
}

/// Why a profile's kind of credentials cannot be used.
fn unsupported(profile: &Profile) -> Option<&'static str> {
    let has = |name: &str| profile.contains_key(name);
    if has("sso_session") || has("sso_start_url") {
        return Some(
            "credentials of IAM Identity Center (sso_*) are not supported; use SecurityConfig::aws_msk_iam_with",
        );
    }
    has("credential_process")
        .then_some("credential_process is not supported; use SecurityConfig::aws_msk_iam_with")
}
