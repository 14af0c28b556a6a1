//! The command line, the same as that of `curtail perf`.

use crate::Failure;

const USAGE: &str = "\
usage: produce --bootstrap-server B --topic T --num-records N --record-size S --throughput R
               [--warmup-records N] [--command-property k=v]... [--json FILE]
       consume --bootstrap-server B --topic T --num-records N [--command-property k=v]... [--json FILE]
       e2e     --bootstrap-server B --topic T --num-records N --producer-acks 1|all --record-size S
               [--warmup-records N] [--command-property k=v]... [--json FILE] [--fates FILE]
       load    --bootstrap-server B --topic T --num-records N --record-size S --throughput R
               [--until acknowledged|read] [--warmup-records N] [--keys K] [--seed N]
               [--producers N] [--to-partitions P,P...] [--burst N]
               [--command-property k=v]... [--json FILE] [--fates FILE]; waits for the line 'go' on standard input
       follow  --bootstrap-server B --topic T --num-records N [--consumers N] [--backlog N] [--from-beginning P,P...]
               [--read-first N] [--work-ms MS] [--command-property k=v]... [--json FILE] [--fates FILE]; waits for the
               line 'go' on standard input
       group-consume --bootstrap-server B --topic T --group G --assignor range|roundrobin|cooperative-sticky
               [--command-property k=v]...
       drive   --bootstrap-server B --topic T --role producer|consumer [--command-property k=v]...;
               obeys commands on standard input";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Produce,
    Consume,
    EndToEnd,
    Load,
    Follow,
    GroupConsume,
    Drive,
}

/// End of a load's latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Acknowledged,
    Read,
}

#[derive(Debug, Clone)]
pub struct Args {
    pub tool: Tool,
    pub bootstrap: String,
    pub topic: String,
    /// All records, warm-up included.
    pub records: u64,
    pub warmup: u64,
    pub record_size: usize,
    /// Records per second; `None` for as fast as possible.
    pub rate: Option<f64>,
    pub acks: Option<String>,
    pub until: Until,
    pub properties: Vec<(String, String)>,
    pub json: Option<String>,
    /// File for the fates of the records.
    pub fates: Option<String>,
    /// Number of different keys; 0 for keyless records.
    pub keys: u64,
    pub seed: u64,
    /// Producers of a load, which send in turn.
    pub producers: usize,
    /// Partitions of a load's records, in turn; empty if the client chooses.
    pub to_partitions: Vec<i32>,
    /// Records of a load that are due at the same time.
    pub burst: u64,
    /// Consumers of `follow`, each of which reads everything.
    pub consumers: u32,
    /// Records of an earlier load that each consumer of `follow` reads too.
    pub backlog: u64,
    /// Partitions that `follow` reads from their beginning; the others from their end.
    pub from_beginning: Vec<i32>,
    /// Records that one consumer reads from the topic's beginning before `follow` is ready.
    pub read_first: u64,
    /// The application's work after each poll of `follow` that has returned records.
    pub work_ms: u64,
    pub group: String,
    pub assignor: String,
    /// Role of `drive`: producer or consumer.
    pub role: String,
}

impl Args {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let tool = match args.next().as_deref() {
            Some("produce") => Tool::Produce,
            Some("consume") => Tool::Consume,
            Some("e2e") => Tool::EndToEnd,
            Some("load") => Tool::Load,
            Some("follow") => Tool::Follow,
            Some("group-consume") => Tool::GroupConsume,
            Some("drive") => Tool::Drive,
            _ => return Err(USAGE.into()),
        };
        let mut parsed = Self {
            tool,
            bootstrap: String::new(),
            topic: String::new(),
            records: 0,
            warmup: 0,
            record_size: 0,
            rate: None,
            acks: None,
            until: Until::Acknowledged,
            properties: Vec::new(),
            json: None,
            fates: None,
            keys: 0,
            seed: 1,
            producers: 1,
            to_partitions: Vec::new(),
            burst: 1,
            consumers: 1,
            backlog: 0,
            from_beginning: Vec::new(),
            read_first: 0,
            work_ms: 0,
            group: String::new(),
            assignor: String::new(),
            role: String::new(),
        };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
            parsed.set(&flag, value)?;
        }
        parsed.check()?;
        Ok(parsed)
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), Failure> {
        match flag {
            "--bootstrap-server" => self.bootstrap = value,
            "--topic" => self.topic = value,
            "--num-records" => self.records = number(flag, &value)?,
            "--warmup-records" => self.warmup = number(flag, &value)?,
            "--record-size" => self.record_size = number(flag, &value)?,
            "--throughput" => self.rate = Some(number(flag, &value)?).filter(|rate| *rate > 0.0),
            "--producer-acks" => self.acks = Some(value),
            "--until" => self.until = until(&value)?,
            "--json" => self.json = Some(value),
            "--fates" => self.fates = Some(value),
            "--keys" => self.keys = number(flag, &value)?,
            "--seed" => self.seed = number(flag, &value)?,
            "--producers" => self.producers = number(flag, &value)?,
            "--to-partitions" => self.to_partitions = numbers(flag, &value)?,
            "--burst" => self.burst = number(flag, &value)?,
            "--consumers" => self.consumers = number(flag, &value)?,
            "--backlog" => self.backlog = number(flag, &value)?,
            "--from-beginning" => self.from_beginning = numbers(flag, &value)?,
            "--read-first" => self.read_first = number(flag, &value)?,
            "--work-ms" => self.work_ms = number(flag, &value)?,
            "--group" => self.group = value,
            "--assignor" => self.assignor = value,
            "--role" => self.role = value,
            "--command-property" => {
                let (key, value) = value.split_once('=').ok_or("--command-property needs k=v")?;
                self.properties.push((key.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("unknown flag {flag}\n{USAGE}").into()),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        let grouped = self.tool == Tool::GroupConsume;
        let driven = self.tool == Tool::Drive;
        let counted = !grouped && !driven;
        let sized = counted && !matches!(self.tool, Tool::Consume | Tool::Follow);
        let missing = [
            ("--bootstrap-server", self.bootstrap.is_empty()),
            ("--topic", self.topic.is_empty()),
            ("--num-records", self.records == 0 && counted),
            ("--record-size", self.record_size == 0 && sized),
            ("--group", self.group.is_empty() && grouped),
            ("--assignor", self.assignor.is_empty() && grouped),
            ("--role", !["producer", "consumer"].contains(&self.role.as_str()) && driven),
        ];
        if let Some((flag, _)) = missing.iter().find(|(_, missing)| *missing) {
            return Err(format!("{flag} is needed\n{USAGE}").into());
        }
        if self.tool == Tool::Load && (self.rate.is_none() || self.record_size < 8) {
            let text = "load needs a --throughput above 0 and records of 8 bytes at least";
            return Err(text.into());
        }
        if self.producers == 0 || self.burst == 0 || self.consumers == 0 {
            return Err("--producers, --burst and --consumers are at least 1".into());
        }
        if self.warmup >= self.records && counted {
            return Err("--warmup-records must be fewer than --num-records".into());
        }
        Ok(())
    }
}

fn until(value: &str) -> Result<Until, Failure> {
    match value {
        "acknowledged" => Ok(Until::Acknowledged),
        "read" => Ok(Until::Read),
        _ => Err(format!("--until is acknowledged or read, not {value:?}").into()),
    }
}

fn numbers(flag: &str, list: &str) -> Result<Vec<i32>, Failure> {
    list.split(',').map(|one| number(flag, one)).collect()
}

fn number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| format!("{flag} needs a number, not {value:?}").into())
}
