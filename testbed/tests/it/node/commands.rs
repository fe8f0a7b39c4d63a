//! Commands in running containers: through the control socket, at once and with streams.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use cri_runtime::control::Target;
use cri_runtime::streaming::spdy::{self, Frame};
use podresources::cri::v1 as cri;
use testbed::eventually;

use super::harness::{DEADLINE, Node, mk_words};
use super::network::in_network_of;

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn commands_run_through_the_control_socket() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    let target = Target::new("ns", "p", "main");
    let output = node
        .control
        .exec(
            &target,
            &["sh", "-c", "echo a; echo b >&2; exit 4"],
            DEADLINE,
        )
        .unwrap();
    assert_eq!(
        (
            output.exit_code,
            output.stdout.as_str(),
            output.stderr.as_str()
        ),
        (4, "a\n", "b\n")
    );
    let error = node
        .control
        .exec(&target, &["/no/such"], DEADLINE)
        .unwrap_err();
    assert!(
        error.to_string().contains("no such file or directory"),
        "{error}"
    );
}

/// Returns a frame that opens a stream of a command, with an uncompressed header.
fn mk_stream(stream: u32, kind: &str) -> Vec<u8> {
    let mut plain = 1_u32.to_be_bytes().to_vec();
    for text in ["streamtype", kind] {
        plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
        plain.extend_from_slice(text.as_bytes());
    }
    let length = plain.len() as u16;
    let mut body = stream.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    if stream == 1 {
        body.extend_from_slice(&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]);
    }
    body.push(0);
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&(!length).to_le_bytes());
    body.extend_from_slice(&plain);
    let mut frame = vec![0x80, 3, 0, 1, 0];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(&body);
    frame
}

/// Runs a command with input as a client of the API does; returns the output of each stream.
fn stream_command(url: &str, input: &[u8]) -> BTreeMap<u32, String> {
    let (address, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        socket.write_all(&mk_stream(stream, kind)).unwrap();
    }
    socket.write_all(&spdy::data(3, input, true)).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let mut decoder = spdy::Decoder::default();
    let mut upgraded = false;
    let mut streams: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let length = socket.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "hung up after {streams:?}");
        if upgraded {
            decoder.feed(&buffer[..length]);
        } else {
            answer.extend_from_slice(&buffer[..length]);
            if let Some(at) = answer.windows(4).position(|end| end == b"\r\n\r\n") {
                assert!(answer.starts_with(b"HTTP/1.1 101 "));
                upgraded = true;
                decoder.feed(&answer[at + 4..]);
            }
        }
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame {
                Frame::Data { stream, bytes, .. } => {
                    let text = String::from_utf8(bytes).unwrap();
                    streams.entry(stream).or_default().push_str(&text);
                }
                Frame::GoAway => return streams,
                _ => {}
            }
        }
    }
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn command_with_streams_gets_input_and_gives_output_errors_and_exit_code() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/pause"]).await;
    let request = cri::ExecRequest {
        container_id: container,
        cmd: mk_words(&["sh", "-c", "cat; echo done >&2; exit 5"]),
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let url = node.runtime.exec(request).await.unwrap().into_inner().url;
    let again = url.clone();
    let pid = node.pid();
    let input = "line\n".repeat(50_000);
    let expected = input.clone();
    let streams = tokio::task::spawn_blocking(move || {
        in_network_of(pid, move || stream_command(&url, input.as_bytes()))
    })
    .await
    .unwrap();
    assert!(
        streams[&5] == expected,
        "{} bytes came back",
        streams[&5].len()
    );
    assert_eq!(streams[&7], "done\n");
    let status: serde_json::Value = serde_json::from_str(&streams[&1]).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "5");
    let second = tokio::task::spawn_blocking(move || {
        std::panic::catch_unwind(|| in_network_of(pid, move || stream_command(&again, b"")))
    })
    .await
    .unwrap();
    assert!(second.is_err(), "an address is good for one client");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn command_over_its_time_limit_is_killed() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    let container = node.run(&sandbox, &["/pause"]).await;
    let request = cri::ExecSyncRequest {
        container_id: container.clone(),
        cmd: mk_words(&["/usr/bin/sleep", "4321"]),
        timeout: 1,
    };
    let error = node.runtime.exec_sync(request).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::DeadlineExceeded);
    let killed = eventually(DEADLINE, async || {
        let (_, commands) = node
            .exec(
                &container,
                &["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"],
            )
            .await;
        if commands.contains("/usr/bin/sleep 4321") {
            return Err(commands);
        }
        Ok(())
    });
    killed.await.unwrap();
}
