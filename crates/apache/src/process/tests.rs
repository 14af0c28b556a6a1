use super::*;

fn far() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_is_ready_at_its_line_and_ends_by_term() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let script = "echo first; echo '[x] Kafka Server started (y)' >&2; exec tail -f /dev/null";
    let mut server = Server::spawn(shell(script), &log).unwrap();
    assert_eq!(server.progress().wait_ready(far()), Start::Ready);
    let status = server.terminate(Duration::from_secs(30)).unwrap().expect("it ends");
    assert!(!status.success());
    assert_eq!(log_tail(&log, 9), "first\n[x] Kafka Server started (y)");
}

#[test]
fn an_ended_server_and_an_unresponsive_one_are_distinguished() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut ended = Server::spawn(shell("echo no"), &log).unwrap();
    assert_eq!(ended.progress().wait_ready(far()), Start::Ended);
    ended.kill().unwrap();
    let mut silent = Server::spawn(shell("exec tail -f /dev/null"), &log).unwrap();
    assert_eq!(silent.progress().wait_ready(Instant::now()), Start::TooLate);
    silent.kill().unwrap();
}

#[test]
fn the_watchdog_kills_added_processes_except_removed_ones() {
    let directory = make_directory().unwrap();
    let log = directory.join("log");
    let watchdog = Watchdog::start(&directory).unwrap();
    let idle = || Server::spawn(shell("exec tail -f /dev/null"), &log).unwrap();
    let (mut spared, mut killed, mut last) = (idle(), idle(), idle());
    for server in [&spared, &killed, &last] {
        watchdog.add(server.pid());
    }
    watchdog.gone(spared.pid());
    drop(watchdog);
    assert!(!directory.exists(), "the directory is removed");
    assert_eq!(killed.progress().wait_ready(far()), Start::Ended);
    assert_eq!(last.progress().wait_ready(far()), Start::Ended);
    assert!(alive(spared.pid()));
    for server in [&mut spared, &mut killed, &mut last] {
        server.kill().unwrap();
    }
}

#[test]
fn a_frozen_server_has_stopped_when_the_call_returns() {
    let directory = tempfile::tempdir().unwrap();
    // A busy process is likely to be running on the other CPU when the signal arrives.
    let mut server =
        Server::spawn(shell("while :; do :; done"), &directory.path().join("log")).unwrap();
    for _ in 0..100 {
        server.freeze().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        assert!(stat.contains(") T "), "{stat}");
        server.thaw().unwrap();
    }
    server.kill().unwrap();
    assert!(server.freeze().is_err(), "it has ended");
}
