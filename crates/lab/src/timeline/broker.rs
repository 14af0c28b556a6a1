//! Reads the request log of Apache Kafka's brokers (logger `kafka.request.logger` at level `DEBUG`).
//!
//! A broker logs a request when its response has been sent, with the time in milliseconds and a JSON object.

use std::time::{Duration, SystemTime};

use serde_json::Value;

/// A request that a broker has served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(super) broker: i32,
    /// When the response had been sent.
    pub(super) sent: SystemTime,
    pub(super) api: String,
    pub(super) client: String,
    pub(super) correlation_id: i32,
    pub(super) took: Took,
    /// Of Produce and Fetch requests and their responses.
    pub(super) partitions: Vec<ServedPartition>,
    /// Of Fetch requests.
    pub(super) session: Option<Session>,
}

/// The part of a fetch session that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Number of the request in its session; 0 begins one, and -1 has none.
    pub(super) epoch: i64,
    /// Partitions that leave the session.
    pub(super) forgotten: usize,
}

/// Phases of a request inside the broker, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    pub(super) total: f64,
    /// Until a handler took it.
    pub(super) queue: f64,
    /// In the handler: append, or read.
    pub(super) local: f64,
    /// Waiting: for followers (Produce), for data (Fetch).
    pub(super) remote: f64,
    /// Until the response was written.
    pub(super) response: f64,
}

/// One partition of a Produce or Fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedPartition {
    /// Topic name or id, whichever the version has.
    pub(super) topic: String,
    pub(super) partition: i32,
    /// Requested offset and leader epoch, in a Fetch request that names the partition.
    pub(super) asked: Option<(i64, i32)>,
    /// Error code and, in a Fetch response, the high watermark, if the response names the partition.
    pub(super) told: Option<(i64, Option<i64>)>,
}

impl Served {
    /// When the broker had read the request.
    pub(super) fn received(&self) -> SystemTime {
        self.sent - Duration::from_secs_f64(self.took.total.max(0.0) / 1000.0)
    }

    /// The broker that fetches as a follower; `None` for clients.
    pub(super) fn follower(&self) -> Option<i32> {
        self.client.strip_prefix("broker-")?.split("-fetcher-").next()?.parse().ok()
    }

    pub(super) fn partition(&self, topics: &[String], partition: i32) -> Option<&ServedPartition> {
        self.partitions.iter().find(|of| of.partition == partition && topics.contains(&of.topic))
    }
}

/// Parses a line of the log; `None` for lines of other loggers.
pub(crate) fn parse(broker: i32, line: &str) -> Option<Served> {
    let (head, json) = line.split_once("Completed request:")?;
    let json: Value = serde_json::from_str(json).ok()?;
    let header = &json["requestHeader"];
    let api = header["requestApiKeyName"].as_str()?.to_owned();
    let time = |name: &str| json[name].as_f64().unwrap_or(0.0);
    let partitions = match api.as_str() {
        "PRODUCE" => partitions(
            (&json["request"]["topicData"], "partitionData", "index"),
            (&json["response"]["responses"], "partitionResponses", "index"),
        ),
        "FETCH" => partitions(
            (&json["request"]["topics"], "partitions", "partition"),
            (&json["response"]["responses"], "partitions", "partitionIndex"),
        ),
        _ => Vec::new(),
    };
    Some(Served {
        broker,
        sent: date(head.get(..23)?)?,
        api,
        client: header["clientId"].as_str().unwrap_or_default().to_owned(),
        correlation_id: i32::try_from(header["correlationId"].as_i64()?).ok()?,
        took: Took {
            total: time("totalTimeMs"),
            queue: time("requestQueueTimeMs"),
            local: time("localTimeMs"),
            remote: time("remoteTimeMs"),
            response: time("responseQueueTimeMs") + time("sendTimeMs"),
        },
        partitions,
        session: session(&json["request"]),
    })
}

fn session(request: &Value) -> Option<Session> {
    let epoch = request["sessionEpoch"].as_i64()?;
    let topics = request["forgottenTopicsData"].as_array().into_iter().flatten();
    let forgotten = topics.filter_map(|topic| Some(topic["partitions"].as_array()?.len())).sum();
    Some(Session { epoch, forgotten })
}

/// Topics, the name of their list of partitions, and the name of a partition's index.
type Listed<'a> = (&'a Value, &'a str, &'a str);

fn partitions(asked: Listed<'_>, told: Listed<'_>) -> Vec<ServedPartition> {
    let mut all: Vec<ServedPartition> = Vec::new();
    each(asked, |topic, partition, value| {
        let offset = value["fetchOffset"].as_i64();
        let epoch =
            value["currentLeaderEpoch"].as_i64().and_then(|epoch| i32::try_from(epoch).ok());
        let asked = offset.map(|offset| (offset, epoch.unwrap_or(-1)));
        all.push(ServedPartition { topic, partition, asked, told: None });
    });
    each(told, |topic, partition, value| {
        let told = value["errorCode"].as_i64().map(|code| (code, value["highWatermark"].as_i64()));
        match all.iter_mut().find(|of| of.partition == partition && of.topic == topic) {
            Some(of) => of.told = told,
            None => all.push(ServedPartition { topic, partition, asked: None, told }),
        }
    });
    all
}

fn each((topics, list, index): Listed<'_>, mut take: impl FnMut(String, i32, &Value)) {
    for topic in topics.as_array().into_iter().flatten() {
        let named = ["topicId", "topic", "name"].iter().find_map(|name| topic[*name].as_str());
        for partition in topic[list].as_array().into_iter().flatten() {
            let at = partition[index].as_i64().and_then(|at| i32::try_from(at).ok());
            if let (Some(name), Some(at)) = (named, at) {
                take(name.to_owned(), at, partition);
            }
        }
    }
}

/// `2026-11-24 18:00:04.013`, in UTC.
fn date(text: &str) -> Option<SystemTime> {
    let part = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    // Days since 1970-01-01 of the proleptic Gregorian calendar, with years that begin in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + part(11..13)? * 3600 + part(14..16)? * 60 + part(17..19)?;
    let millis = u64::try_from(seconds * 1000 + part(20..23)?).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn produce_line_has_times_partitions_and_error() {
        let line = r#"2026-11-24 18:00:01.841 [data-plane] DEBUG kafka.request.logger - Completed request:{"requestHeader":{"requestApiKey":0,"correlationId":7,"clientId":"curtail","requestApiKeyName":"PRODUCE"},"request":{"acks":-1,"topicData":[{"topicId":"vAW3","partitionData":[{"index":2,"recordsSizeInBytes":16205}]}]},"response":{"responses":[{"topicId":"vAW3","partitionResponses":[{"index":2,"errorCode":6}]}]},"totalTimeMs":248.086,"requestQueueTimeMs":14.912,"localTimeMs":199.044,"remoteTimeMs":1.5,"responseQueueTimeMs":7.5,"sendTimeMs":26.5}"#;
        let served = parse(3, line).unwrap();
        assert_eq!((served.api.as_str(), served.correlation_id, served.broker), ("PRODUCE", 7, 3));
        let Took { total, queue, local, remote, response } = served.took;
        assert_eq!((total, queue, local, remote, response), (248.086, 14.912, 199.044, 1.5, 34.0));
        let of = served.partition(&["vAW3".into()], 2).unwrap();
        assert_eq!((of.asked, of.told), (None, Some((6, None))));
        let since = served.sent.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_millis(), 1_795_543_201_841);
        assert_eq!(served.received(), served.sent - Duration::from_secs_f64(0.248_086));
    }

    #[test]
    fn fetch_of_a_follower_joins_request_and_response_of_a_partition() {
        let line = r#"2026-11-24 18:00:04.013 [t] DEBUG kafka.request.logger - Completed request:{"requestHeader":{"correlationId":2,"clientId":"broker-3-fetcher-0","requestApiKeyName":"FETCH"},"request":{"topics":[{"topicId":"vAW3","partitions":[{"partition":5,"currentLeaderEpoch":4,"fetchOffset":10}]}]},"response":{"responses":[{"topicId":"vAW3","partitions":[{"partitionIndex":5,"errorCode":0,"highWatermark":9},{"partitionIndex":6,"errorCode":74,"highWatermark":-1}]}]},"totalTimeMs":16.296}"#;
        let served = parse(1, line).unwrap();
        assert_eq!(served.follower(), Some(3));
        let topic = ["vAW3".to_owned()];
        let five = served.partition(&topic, 5).unwrap();
        assert_eq!((five.asked, five.told), (Some((10, 4)), Some((0, Some(9)))));
        assert_eq!(served.partition(&topic, 6).unwrap().told, Some((74, Some(-1))));
        assert_eq!(served.session, None, "the line has none");
        let line = line.replace(
            r#""request":{"#,
            r#""request":{"sessionEpoch":7,"forgottenTopicsData":[{"topicId":"vAW3","partitions":[1,2]}],"#,
        );
        let session = parse(1, &line).unwrap().session;
        assert_eq!(session, Some(Session { epoch: 7, forgotten: 2 }));
    }

    #[test]
    fn lines_of_other_loggers_are_skipped() {
        assert!(parse(1, "2026-11-24 18:00:04.013 [main] INFO kafka.Kafka - started").is_none());
    }
}
