//! An API server that does not answer, or not to the end, costs a run the time of its limits and no more.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use assert_cmd::Command;
use rstest::rstest;

/// Longer than the limits of all requests of a set-up that fails.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Keeps the connections open and says nothing.
fn never(_: &mut TcpStream) -> bool {
    true
}

/// Keeps the connections open in the middle of an answer.
fn half(connection: &mut TcpStream) -> bool {
    // the request has to be there first; what it is does not matter
    let asked = connection.peek(&mut [0]).is_ok();
    asked
        && connection
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
            .is_ok()
}

/// Closes the connections, which resets those whose request was not read.
fn reset(_: &mut TcpStream) -> bool {
    false
}

#[rstest]
#[case::never(never)]
#[case::half(half)]
#[case::reset(reset)]
fn a_server_that_does_not_answer_fails_the_set_up(#[case] serve: fn(&mut TcpStream) -> bool) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    // ends with the process of the tests
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut connection in listener.incoming().flatten() {
            if serve(&mut connection) {
                kept.push(connection);
            }
        }
    });
    let dir = tempfile::tempdir().expect("temporary directory");
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         users: [{{name: a, user: {{token: t}}}}]\nclusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("kubeconfig is written");
    let output = Command::new(env!("CARGO_BIN_EXE_numaresources-tests"))
        .timeout(TIMEOUT)
        .current_dir(dir.path())
        .env("KUBECONFIG", kubeconfig)
        .args(["byres/cpu-decides", "--deadline-factor", "0.01"])
        .assert()
        .code(1);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("the API server refused"), "{text}");
}
