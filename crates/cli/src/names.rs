//! Suggestions for mistyped names: the nearest existing one.

#[cfg(test)]
mod tests;

use curtail::{Admin, AdminConfig, Error, ErrorCode};

use crate::failure::Failure;

/// A client that looks up names, with the applicable properties of another client.
pub(crate) fn admin(properties: &[(String, String)]) -> Result<Admin, Failure> {
    let mut config = AdminConfig::default();
    for (name, value) in properties {
        // The other client has already validated them.
        let _ = config.set(name, value);
    }
    // An admin client requires request.timeout.ms <= default.api.timeout.ms, which a consumer's properties may
    // violate.
    let limit = config.get_request_timeout().min(config.get_default_api_timeout());
    Ok(Admin::new(config.request_timeout(limit))?)
}

/// A topic that does not exist.
pub(crate) struct Missing {
    name: String,
    nearest: Option<String>,
}

impl Missing {
    async fn new(admin: &Admin, name: &str) -> Self {
        // The topic is missing even if the others cannot be listed.
        let topics = admin.list_topics().await.unwrap_or_default();
        let nearest = nearest(name, topics.iter().map(|topic| topic.name.as_str()));
        Self { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
    }

    /// The failure of a command that writes to the topic, because the brokers do not create topics.
    pub(crate) fn not_created(self) -> Failure {
        match self.nearest {
            Some(_) => self.into(),
            None => not_created(&self.name),
        }
    }

    /// Message after the brokers have created the topic.
    pub(crate) fn created(&self) -> String {
        let Self { name, nearest } = self;
        let hint = nearest.as_ref().map(|nearest| format!("; did you mean '{nearest}'?"));
        let hint = hint.unwrap_or_default();
        format!(
            "topic '{name}' did not exist; the brokers created it (auto.create.topics.enable){hint}"
        )
    }
}

/// For commands that need an existing topic.
impl From<Missing> for Failure {
    fn from(Missing { name, nearest }: Missing) -> Self {
        Self::new(missing("topic", &name, nearest.as_deref()))
    }
}

/// Looks up whether a topic exists. The client that uses it reports any other error.
pub(crate) async fn missing_topic(admin: &Admin, topic: &str) -> Result<Option<Missing>, Failure> {
    for (_, described) in admin.describe_topics(&[topic]).await? {
        if let Err(Error::UnknownTopic(_)) = described {
            return Ok(Some(Missing::new(admin, topic).await));
        }
    }
    Ok(None)
}

/// The failure for an error about a topic or a group, with the nearest name if there is none of this name.
pub(crate) async fn failure(admin: &Admin, name: &str, error: Error) -> Failure {
    match &error {
        Error::UnknownTopic(_) => Missing::new(admin, name).await.into(),
        Error::Broker { code, .. } if *code == ErrorCode::GROUP_ID_NOT_FOUND => {
            Failure::new(missing_group(admin, name).await.text())
        }
        _ => error.into(),
    }
}

/// A group that does not exist.
pub(crate) struct MissingGroup {
    name: String,
    nearest: Option<String>,
}

/// Looks up the nearest group to one that does not exist.
pub(crate) async fn missing_group(admin: &Admin, name: &str) -> MissingGroup {
    let groups = admin.list_groups().await.unwrap_or_default();
    let listed = groups.into_iter().filter_map(|(_, groups)| groups.ok()).flatten();
    let groups: Vec<String> = listed.map(|group| group.group_id).collect();
    let nearest = nearest(name, groups.iter().map(String::as_str)).map(str::to_owned);
    MissingGroup { name: name.to_owned(), nearest }
}

impl MissingGroup {
    fn text(&self) -> String {
        missing("group", &self.name, self.nearest.as_deref())
    }

    /// The failure of a command that creates groups with --create.
    pub(crate) fn not_created(&self) -> Failure {
        let mark = if self.nearest.is_some() { "" } else { ";" };
        Failure::new(format!("{}{mark} --create creates a new group", self.text()))
    }
}

/// The failure for a topic that does not exist, of a command that writes to it.
pub(crate) fn not_created(topic: &str) -> Failure {
    Failure::new(format!(
        "topic '{topic}' does not exist; create it with `curtail topics create {topic}`"
    ))
}

fn missing(kind: &str, name: &str, nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("{kind} '{name}' does not exist; did you mean '{nearest}'?"),
        None => {
            format!("{kind} '{name}' does not exist; `curtail {kind}s list` prints the {kind}s")
        }
    }
}

/// Longest compared prefix of a name.
const COMPARED: usize = 249;

/// The name with the smallest edit distance, if a typing error could explain the difference.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let compared = |name: &str| name.chars().take(COMPARED).collect::<String>();
    let name = compared(name);
    let distances = known.map(|known| (strsim::levenshtein(&name, &compared(known)), known));
    let (distance, nearest) = distances.min()?;
    // At least one, so that names of two characters have a neighbour.
    (distance <= (name.chars().count() / 3).max(1)).then_some(nearest)
}
