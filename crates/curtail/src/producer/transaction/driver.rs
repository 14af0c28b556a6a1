//! The task that carries out the machine's steps: finds coordinators and sends them requests, one at a time.

use std::sync::Arc;

use curtail_proto::{
    metadata::Node,
    transaction::{Coordinator, Key, Reply, Request, Step},
};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Control, requests};
use crate::{
    Error, Result,
    conn::{Connection, Idle, connection_error},
    coordinator::{Coordinated, find, successor},
    producer::shared::{Shared, resubmit},
};

/// Runs until the producer aborts it.
pub(super) async fn run(shared: Arc<Shared>, control: Arc<Control>) {
    let idle = Idle::new(&shared.runtime);
    let mut driver = Driver { shared, control, idle };
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
    /// Connections to coordinators whose last request succeeded.
    idle: Idle<i32>,
}

impl Driver {
    async fn drain(&self, wait_for_in_flight: bool) {
        let in_flight = self.shared.give_up(&self.control.end_of_transaction());
        if wait_for_in_flight {
            for result in in_flight {
                result.resolved().await;
            }
            // An expired batch has an outcome, but the leader may not have appended it yet.
            self.control.strays.none_left().await;
        }
        self.control.look(|machine| machine.drained(wait_for_in_flight));
    }

    async fn find(&mut self, coordinator: Coordinator) {
        let shared = &self.shared;
        let what = self.coordinated(&coordinator);
        let found = match find(&shared.metadata, &shared.config.common, what).await {
            Ok(found) => found.map_err(Reply::Refused),
            Err(error) => Err(lost(error)),
        };
        let now = Instant::now().into_std();
        if let (Coordinator::Transaction, Ok(node)) = (&coordinator, &found) {
            self.control.succession.name(node.id, now);
        }
        let unit = self.shared.env.entropy.unit();
        self.control.look(|machine| machine.found(coordinator, found, now, unit));
    }

    fn coordinated<'a>(&'a self, coordinator: &'a Coordinator) -> Coordinated<'a> {
        match coordinator {
            Coordinator::Transaction => Coordinated::Transactions(self.control.id()),
            Coordinator::Group(group) => Coordinated::Group(group),
        }
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
        let open = self.idle.take(&node.id);
        let exchange = async {
            let mut connection = match open {
                Some(open) => open,
                None => self.connect(node, &coordinator).await?,
            };
            let reply = requests::ask(&mut connection, &call, &request).await?;
            Ok((reply, connection))
        };
        let no_response = |why: String| {
            let text = format!("no response to {}, {why}", request.name());
            Reply::Lost(connection_error(&format!("{}:{}", node.host, node.port).into(), text))
        };
        let reply = tokio::select! {
            biased;
            answered = exchange => match answered {
                Ok((reply, connection)) => {
                    self.idle.put(node.id, connection);
                    reply
                }
                Err(error) => lost(error),
            },
            successor = self.successor(node.id, &coordinator) => {
                no_response(format!("and broker {} is now the coordinator", successor.id))
            }
            () = self.verifier_is_replaced(&coordinator) => {
                no_response("which may wait for a replaced coordinator of the transaction".into())
            }
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

    async fn successor(&self, of: i32, coordinator: &Coordinator) -> Node {
        let shared = &self.shared;
        let what = self.coordinated(coordinator);
        successor(&shared.metadata, &shared.config.common, what, of).await
    }

    /// Waits until a group's coordinator may wait for a replaced coordinator of the transaction, which it asks whether
    /// the transaction is open.
    async fn verifier_is_replaced(&self, asked: &Coordinator) {
        let (succession, asked_at) = (&self.control.succession, Instant::now().into_std());
        let verifier = match asked {
            Coordinator::Transaction => None,
            Coordinator::Group(_) => succession.coordinator(),
        };
        let Some(verifier) = verifier else { return std::future::pending().await };
        if succession.concerns(asked_at) {
            return sleep(self.shared.config.common.retry_backoff_max).await;
        }
        let successor = self.successor(verifier, &Coordinator::Transaction).await;
        self.control.coordinator_is(successor);
    }

    /// Resubmits the added partitions.
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

/// The outcome of a request without a response. A request in an unsupported version will not succeed later either.
fn lost(error: Error) -> Reply<Error> {
    match error {
        error if error.needs_other_settings() => Reply::Impossible(error),
        Error::UnsupportedVersion(_) => Reply::Impossible(error),
        error => Reply::Lost(error),
    }
}
