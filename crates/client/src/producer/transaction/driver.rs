//! The task that does what the machine says: finds coordinators and asks them, one request at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail_proto::{
    metadata::Node,
    transaction::{Coordinator, Key, Reply, Request, Step},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Control, requests};
use crate::{
    Error, Result,
    conn::Connection,
    producer::shared::{Shared, resubmit},
};

/// Runs until it is aborted, with the producer.
pub(super) async fn run(shared: Arc<Shared>, control: Arc<Control>) {
    let mut driver = Driver { shared, control, idle: BTreeMap::new() };
    loop {
        let now = Instant::now().into_std();
        let step = driver.control.look(|machine| machine.next(now));
        driver.control.announce();
        match step {
            Step::Idle => driver.control.woken().await,
            Step::Wait(at) => tokio::select! {
                biased;
                () = driver.control.woken() => {}
                () = sleep_until(Instant::from_std(at)) => {}
            },
            Step::Drain { wait_for_in_flight } => driver.drain(wait_for_in_flight).await,
            Step::Find(coordinator) => driver.find(coordinator).await,
            Step::Ask(node, coordinator, request) => driver.ask(&node, coordinator, request).await,
        }
    }
}

struct Driver {
    shared: Arc<Shared>,
    control: Arc<Control>,
    /// Connections to coordinators that have answered.
    idle: BTreeMap<i32, Connection>,
}

impl Driver {
    async fn drain(&self, wait_for_in_flight: bool) {
        let in_flight = self.shared.give_up(&self.control.end_of_transaction());
        if wait_for_in_flight {
            for result in in_flight {
                result.resolved().await;
            }
        }
        self.control.look(|machine| machine.drained(wait_for_in_flight));
    }

    async fn find(&mut self, coordinator: Coordinator) {
        let limit = self.shared.config.common.request_timeout;
        let found = match timeout(limit, find(&self.shared, self.control.id(), &coordinator)).await
        {
            Ok(found) => found,
            Err(_) => Err(Reply::Lost(no_answer("FindCoordinator", limit))),
        };
        let now = Instant::now().into_std();
        let unit = self.shared.env.entropy.unit();
        self.control.look(|machine| machine.found(coordinator, found, now, unit));
    }

    async fn ask(&mut self, node: &Node, coordinator: Coordinator, request: Request) {
        let (protocol, identity, serial) =
            self.control.look(|machine| (machine.protocol(), machine.identity(), machine.serial()));
        let call = requests::Call {
            id: self.control.id(),
            timeout: self.shared.config.transaction_timeout,
            identity,
            protocol,
        };
        let open = self.idle.remove(&node.id);
        let exchange = async {
            let mut connection = match open {
                Some(open) => open,
                None => self.connect(node, &coordinator).await?,
            };
            let reply = requests::ask(&mut connection, &call, &request).await?;
            Ok((reply, connection))
        };
        // A coordinator that hangs has a successor long before request.timeout.ms is over.
        let reply = tokio::select! {
            biased;
            answered = exchange => match answered {
                Ok((reply, connection)) => {
                    self.idle.insert(node.id, connection);
                    reply
                }
                Err(error) => lost(error),
            },
            successor = self.moved_from(node, &coordinator) => Reply::Lost(Error::Connection {
                broker: format!("{}:{}", node.host, node.port).into(),
                reason: format!(
                    "no answer to {}, and broker {successor} is the coordinator now",
                    request.name()
                ).into(),
            }),
        };
        tracing::debug!(request = request.name(), broker = node.id, ?reply, "coordinator");
        let now = Instant::now().into_std();
        let unit = self.shared.env.entropy.unit();
        let added =
            self.control.look(|machine| machine.answered(&coordinator, &request, reply, now, unit));
        self.release(&added, serial);
    }

    async fn connect(&self, node: &Node, coordinator: &Coordinator) -> Result<Connection> {
        let common = &self.shared.config.common;
        let connection = Connection::open(&self.shared.env, common, &node.host, node.port).await?;
        if *coordinator == Coordinator::Transaction {
            let level = connection.finalized_level("transaction.version").unwrap_or(0);
            self.control.look(|machine| machine.coordinator_speaks(level));
        }
        Ok(connection)
    }

    /// Resolves once another broker is the coordinator; never before there is reason to ask.
    async fn moved_from(&self, node: &Node, coordinator: &Coordinator) -> i32 {
        let mut patience =
            self.shared.config.common.retry_backoff_max.max(Duration::from_millis(100));
        loop {
            sleep(patience).await;
            patience = (patience * 2).min(self.shared.config.common.request_timeout);
            let find = find(&self.shared, self.control.id(), coordinator);
            if let Ok(Ok(found)) = timeout(patience, find).await
                && found.id != node.id
            {
                return found.id;
            }
        }
    }

    /// Lets the partitions that were added go.
    fn release(&self, added: &[Key], serial: u64) {
        let topics = self.shared.topics.load();
        for (topic, index) in added {
            let partitions = topics.get(topic).map(|topic| &topic.partitions);
            let at = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(partition) = partitions.and_then(|partitions| partitions.get(at)) else {
                continue;
            };
            let mut state = partition.state.lock();
            self.control.added(&mut state, serial);
            resubmit(state, partition);
        }
    }
}

async fn find(shared: &Shared, id: &str, coordinator: &Coordinator) -> Result<Node, Reply<Error>> {
    let mut connection = shared.metadata.connect_any().await.map_err(lost)?;
    let found = requests::find(&mut connection, id, coordinator).await.map_err(lost)?;
    found.map_err(Reply::Refused)
}

/// A request without an answer. One that cannot be sent at all will not be sent later either.
fn lost(error: Error) -> Reply<Error> {
    match error {
        Error::UnsupportedVersion(_) => Reply::Impossible(error),
        error => Reply::Lost(error),
    }
}

fn no_answer(request: &'static str, limit: Duration) -> Error {
    Error::Timeout { what: request, limit, last: None }
}
