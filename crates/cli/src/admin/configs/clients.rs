//! Quotas of users, clients and addresses, and SCRAM credentials of users.

use std::collections::BTreeMap;

use clap::Args;
use curtail::{
    Admin, ErrorCode,
    admin::{
        Each, Mode, QuotaChange, QuotaEntity, QuotaFilter, QuotaMatch, Quotas, ScramChange,
        ScramCredential, ScramMechanism,
    },
};

use super::{Additions, Alter, brackets, no_change};
use crate::{
    admin::{Cell, Format, report},
    failure::Failure,
    output,
    settings::Property,
};

/// Users, clients and addresses, with the flags of kafka-configs.
#[derive(Debug, Default, Args)]
pub(super) struct Clients {
    /// A user. With --client, the quotas of these clients of the user. May be given several times.
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<String>,
    /// The default of users without quotas.
    #[arg(long)]
    user_defaults: bool,
    /// A client.id. May be given several times.
    #[arg(long = "client", value_name = "ID")]
    clients: Vec<String>,
    /// The default of clients without quotas.
    #[arg(long)]
    client_defaults: bool,
    /// An address. May be given several times.
    #[arg(long = "ip", value_name = "ADDRESS")]
    ips: Vec<String>,
    /// The default of addresses without quotas.
    #[arg(long)]
    ip_defaults: bool,
}

/// Kafka's names of the kinds of entities.
const USER: &str = "user";
const CLIENT: &str = "client-id";
const IP: &str = "ip";

impl Clients {
    pub(super) fn is_empty(&self) -> bool {
        let names = [&self.users, &self.clients, &self.ips];
        names.into_iter().all(Vec::is_empty)
            && !(self.user_defaults || self.client_defaults || self.ip_defaults)
    }

    /// The users whose credentials are meant, too: those without clients.
    fn scram_users(&self) -> Vec<&str> {
        match self.clients.is_empty() && !self.client_defaults {
            true => self.users.iter().map(String::as_str).collect(),
            false => Vec::new(),
        }
    }

    /// The entities: addresses, or users, or clients, or each client of each user.
    fn entities(&self) -> Result<Vec<QuotaEntity>, Failure> {
        let users = named(USER, &self.users, self.user_defaults);
        let clients = named(CLIENT, &self.clients, self.client_defaults);
        let ips = named(IP, &self.ips, self.ip_defaults);
        if !ips.is_empty() {
            if !users.is_empty() || !clients.is_empty() {
                return Err(Failure::new("--ip cannot be combined with --user or --client"));
            }
            return Ok(ips);
        }
        if users.is_empty() || clients.is_empty() {
            return Ok(if users.is_empty() { clients } else { users });
        }
        let both = users.iter().flat_map(|user| {
            clients
                .iter()
                .map(move |client| user.clone().into_iter().chain(client.clone()).collect())
        });
        Ok(both.collect())
    }
}

fn named(kind: &str, names: &[String], default: bool) -> Vec<QuotaEntity> {
    let names = names.iter().cloned().map(Some).chain(default.then_some(None));
    names.map(|name| QuotaEntity::from([(kind.to_owned(), name)])).collect()
}

fn filter(entity: &QuotaEntity) -> QuotaFilter {
    QuotaFilter::only(entity.iter().map(|(kind, name)| {
        let wanted = name.clone().map_or(QuotaMatch::Default, QuotaMatch::Name);
        (kind.clone(), wanted)
    }))
}

/// `user 'alice', client-id 'app'`, `default user`.
fn shown(entity: &QuotaEntity) -> String {
    // A user before its client, as in Kafka's tool.
    let parts = entity.iter().rev().map(|(kind, name)| match name {
        Some(name) => format!("{kind} '{name}'"),
        None => format!("default {kind}"),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Prints the quotas of these entities and the credentials of these users.
pub(super) async fn describe(
    admin: &Admin,
    clients: &Clients,
    format: &Format,
) -> Result<(), Failure> {
    let mut quotas = BTreeMap::new();
    for entity in clients.entities()? {
        quotas.extend(admin.describe_client_quotas(&filter(&entity)).await?);
    }
    let users = clients.scram_users();
    let credentials = match users.is_empty() {
        true => Vec::new(),
        false => admin.describe_user_scram_credentials(Some(&users)).await?,
    };
    print(quotas, credentials, format)
}

/// Prints all quotas and credentials.
pub(super) async fn describe_all(admin: &Admin, format: &Format) -> Result<(), Failure> {
    let quotas = admin.describe_client_quotas(&QuotaFilter::all()).await?;
    let credentials = admin.describe_user_scram_credentials(None).await?;
    print(quotas, credentials, format)
}

fn print(
    quotas: BTreeMap<QuotaEntity, Quotas>,
    mut credentials: Each<String, Vec<ScramCredential>>,
    format: &Format,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (entity, values) in quotas {
        rows.extend(values.into_iter().map(|(name, value)| {
            vec![Cell::from(shown(&entity)), name.into(), value.to_string().into()]
        }));
    }
    // A user may have quotas only.
    credentials.retain(|(_, result)| {
        let code = result.as_ref().err().and_then(curtail::Error::code);
        code != Some(ErrorCode::RESOURCE_NOT_FOUND)
    });
    credentials.sort_by(|(a, _), (b, _)| a.cmp(b));
    let all_known = report(credentials, |user, mut found| {
        // Brokers return them in any order.
        found.sort_by_key(|credential| credential.mechanism);
        rows.extend(found.into_iter().map(|credential| {
            let value = format!("iterations={}", credential.iterations);
            let name = credential.mechanism.name();
            vec![Cell::from(format!("{USER} '{user}'")), name.into(), value.into()]
        }));
        Ok(())
    });
    if format.json || !rows.is_empty() || all_known.is_ok() {
        let none = "no quotas and no SCRAM credentials";
        format.rows(&["RESOURCE", "NAME", "VALUE"], rows, none)?;
    }
    all_known
}

/// Changes of quotas and of passwords.
#[derive(Debug, Default)]
struct Changes {
    quotas: Vec<QuotaChange>,
    passwords: Vec<Password>,
}

/// A change of a password: none deletes it.
#[derive(Debug)]
struct Password {
    mechanism: ScramMechanism,
    set: Option<Secret>,
}

struct Secret {
    iterations: Option<u32>,
    password: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// The hash function that a name stands for.
pub(super) fn mechanism(name: &str) -> Option<ScramMechanism> {
    let known = [ScramMechanism::Sha256, ScramMechanism::Sha512];
    known.into_iter().find(|mechanism| mechanism.name() == name)
}

/// Parses kafka-configs' `iterations=8192,password=SECRET`. A mistake is reported without the password.
fn secret(name: &str, value: &str) -> Result<Secret, Failure> {
    let expected = || {
        Failure::new(format!(
            "{name}: expected {name}=[password=SECRET] or {name}=[iterations=8192,password=SECRET]"
        ))
    };
    let (iterations, rest) = match value.strip_prefix("iterations=") {
        Some(rest) => {
            let (count, rest) = rest.split_once(',').ok_or_else(expected)?;
            (Some(count.trim().parse().map_err(|_| expected())?), rest.trim_start())
        }
        None => (None, value),
    };
    let password = rest.strip_prefix("password=").filter(|password| !password.is_empty());
    Ok(Secret { iterations, password: password.ok_or_else(expected)?.to_owned() })
}

impl Changes {
    /// Adds the settings of one `--add`. Errors do not quote values, which may be passwords.
    fn add(&mut self, added: Vec<Property>) -> Result<(), Failure> {
        let mut before = None;
        for Property { name, value } in added {
            if let Some(mechanism) = mechanism(&name) {
                let set = Some(secret(&name, &value)?);
                self.passwords.push(Password { mechanism, set });
                before = Some(name);
                continue;
            }
            let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            let number = number.ok_or_else(|| match &before {
                // The name may be a part of a password with commas.
                Some(mechanism) => Failure::new(format!(
                    "expected a number after {mechanism}, as quotas are; {}",
                    brackets(mechanism)
                )),
                None => Failure::new(format!("{name}: expected a number, as quotas are")),
            })?;
            self.quotas.push(QuotaChange::Set(name, number));
        }
        Ok(())
    }

    fn new(add: Vec<Additions>, delete: Vec<String>) -> Result<Self, Failure> {
        let mut all = Self::default();
        for Additions(added) in add {
            all.add(added)?;
        }
        for name in delete {
            match mechanism(&name) {
                Some(mechanism) => all.passwords.push(Password { mechanism, set: None }),
                None => all.quotas.push(QuotaChange::Remove(name)),
            }
        }
        Ok(all)
    }
}

/// Changes quotas, and the credentials of users.
pub(super) async fn alter(admin: &Admin, clients: &Clients, with: Alter) -> Result<(), Failure> {
    if !with.append.is_empty() || !with.subtract.is_empty() {
        return Err(Failure::new("quotas are numbers; use --add or --delete"));
    }
    let entities = clients.entities()?;
    let changes = Changes::new(with.add, with.delete)?;
    if changes.quotas.is_empty() && changes.passwords.is_empty() {
        return Err(no_change("producer_byte_rate", "1048576"));
    }
    if !changes.passwords.is_empty() {
        let users = clients.scram_users();
        if users.len() != entities.len() {
            return Err(Failure::new("SCRAM credentials belong to users; use --user NAME"));
        }
        if with.dry_run {
            let text = "brokers cannot validate SCRAM credentials only; leave out --dry-run";
            return Err(Failure::new(text));
        }
    }
    if !changes.quotas.is_empty() {
        alter_quotas(admin, entities, &changes.quotas, with.dry_run).await?;
    }
    match changes.passwords.is_empty() {
        true => Ok(()),
        false => alter_passwords(admin, &clients.scram_users(), &changes.passwords).await,
    }
}

async fn alter_quotas(
    admin: &Admin,
    entities: Vec<QuotaEntity>,
    changes: &[QuotaChange],
    dry_run: bool,
) -> Result<(), Failure> {
    let removed = changes.iter().filter_map(|change| match change {
        QuotaChange::Remove(name) => Some(name),
        QuotaChange::Set(..) => None,
    });
    let removed: Vec<&String> = removed.collect();
    if !removed.is_empty() {
        for entity in &entities {
            are_set(admin, entity, &removed).await?;
        }
    }
    let wanted: Vec<_> = entities.into_iter().map(|entity| (entity, changes.to_vec())).collect();
    let (mode, done) = match dry_run {
        true => (Mode::Validate, "Would change"),
        false => (Mode::Apply, "Changed"),
    };
    report(admin.alter_client_quotas(&wanted, mode).await?, |entity, ()| {
        output::line(format_args!("{done} quotas of {}.", shown(entity)))
    })
}

/// Fails if an entity lacks one of these quotas, whose removal brokers accept.
async fn are_set(admin: &Admin, entity: &QuotaEntity, names: &[&String]) -> Result<(), Failure> {
    let described = admin.describe_client_quotas(&filter(entity)).await?;
    let none = Quotas::new();
    let quotas = described.get(entity).unwrap_or(&none);
    match names.iter().find(|name| !quotas.contains_key(**name)) {
        Some(name) => Err(Failure::new(format!(
            "{} has no quota {name}; `curtail configs describe` prints those it has",
            shown(entity)
        ))),
        None => Ok(()),
    }
}

async fn alter_passwords(
    admin: &Admin,
    users: &[&str],
    passwords: &[Password],
) -> Result<(), Failure> {
    let change = |user: &str, Password { mechanism, set }: &Password| match set {
        Some(Secret { iterations, password }) => {
            let change = ScramChange::upsert(user, *mechanism, password.as_str());
            match iterations {
                Some(iterations) => change.iterations(*iterations),
                None => change,
            }
        }
        None => ScramChange::delete(user, *mechanism),
    };
    // Controllers refuse two changes of one user in a request.
    for password in passwords {
        let changes: Vec<ScramChange> = users.iter().map(|user| change(user, password)).collect();
        let name = password.mechanism.name();
        report(admin.alter_user_scram_credentials(&changes).await?, |user, ()| {
            output::line(format_args!("Changed {name} of {USER} '{user}'."))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::configs::additions;

    fn clients(users: &[&str], clients: &[&str]) -> Clients {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Clients { users: owned(users), clients: owned(clients), ..Clients::default() }
    }

    #[test]
    fn users_with_clients_are_pairs() {
        let both = Clients { client_defaults: true, ..clients(&["a", "b"], &["x"]) };
        let names: Vec<String> = both.entities().unwrap().iter().map(shown).collect();
        assert_eq!(
            names,
            [
                "user 'a', client-id 'x'",
                "user 'a', default client-id",
                "user 'b', client-id 'x'",
                "user 'b', default client-id"
            ]
        );
        assert!(both.scram_users().is_empty());
        assert_eq!(clients(&["a"], &[]).scram_users(), ["a"]);
        let mixed = Clients { ip_defaults: true, ..clients(&["a"], &[]) };
        assert!(mixed.entities().is_err());
    }

    #[test]
    fn errors_of_additions_do_not_quote_values() {
        for text in [
            "hunter2",
            "SCRAM-SHA-512=hunter2",
            "producer_byte_rate=hunter2",
            "scram-sha-512=[password=hunter2]",
            "SCRAM-SHA-512=iterations=8192,password=hunter2",
            "SCRAM-SHA-512=password=x,hunter2",
            "SCRAM-SHA-512=password=x,hunter2=y",
            "SCRAM-SHA-512=password=x,hunter2=y,z",
            "SCRAM-SHA-512=[password=hunter2",
        ] {
            let changes = |added| Changes::new(vec![added], Vec::new());
            let error = match additions(text).map(changes) {
                Ok(Err(Failure::Message(error))) | Err(error) => error,
                other => panic!("{text}: {other:?}"),
            };
            assert!(error.contains("expected ") && !error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_parsed_as_in_kafka_configs_and_not_shown() {
        let parsed =
            |value: &str| secret("SCRAM-SHA-256", value).map(|s| (s.iterations, s.password));
        let password = |text: &str| text.to_owned();
        assert_eq!(parsed("password=a,b=c").unwrap(), (None, password("a,b=c")));
        assert_eq!(parsed("iterations=8192,password=x").unwrap(), (Some(8192), password("x")));
        for wrong in ["hunter2", "password=", "iterations=x,password=hunter2", "iterations=1"] {
            let Err(Failure::Message(text)) = parsed(wrong) else { panic!("{wrong}") };
            assert!(
                text.starts_with("SCRAM-SHA-256: expected ") && !text.contains("hunter2"),
                "{text}"
            );
        }
        let shown = format!("{:?}", secret("SCRAM-SHA-256", "password=hunter2").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
