//! Tools that follow the changes of a cluster.

use std::process::Stdio;
use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, Command};

use crate::server::{Server, node, topology};

const WITHIN: Duration = Duration::from_mins(1);

fn start(server: &Server, arguments: &[&str]) -> Child {
    let command = server.command(env!("CARGO_BIN_EXE_nrotool"), arguments);
    Command::from(command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn line<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> String {
    let line = tokio::time::timeout(WITHIN, lines.next_line()).await;
    line.expect("a line in time")
        .unwrap()
        .expect("it still runs")
}

#[tokio::test]
async fn changes_are_seen_as_they_happen() {
    let server = Server::start().await.with_definitions().await;
    server
        .record(&[
            node("worker-0", &json!({})),
            topology("worker-0", &[4, 8], &[]),
        ])
        .await;
    let mut pictures = start(&server, &["nrt", "--watch", "-o", "json"]);
    let mut pictures = BufReader::new(pictures.stdout.take().unwrap()).lines();
    let available = async |lines: &mut Lines<BufReader<_>>| {
        let picture: Value = serde_json::from_str(&line(lines).await).unwrap();
        picture["nodes"][0]["zones"][0]["resources"][0]["available"].clone()
    };
    assert_eq!(available(&mut pictures).await, "4");

    let mut attributes = start(&server, &["watchnrtattr"]);
    let mut attributes = BufReader::new(attributes.stderr.take().unwrap()).lines();
    let change = async |left: u32, scope: &str| {
        let mut object = topology("worker-0", &[left, 8], &[]);
        object["attributes"][1]["value"] = json!(scope);
        let topologies: Api<NodeResourceTopology> = Api::all(server.client.clone());
        topologies
            .patch("worker-0", &PatchParams::default(), &Patch::Merge(object))
            .await
            .unwrap();
    };
    change(3, "pod").await;
    while available(&mut pictures).await != "3" {}
    // the tool may have begun to watch only after the change: change until it tells
    let told = async {
        let mut left = 0;
        loop {
            left = (left + 1) % 8;
            change(left, "pod").await;
            let told =
                tokio::time::timeout(Duration::from_millis(200), attributes.next_line()).await;
            if let Ok(told) = told {
                return told.unwrap().expect("it still runs");
            }
        }
    };
    let told = tokio::time::timeout(WITHIN, told)
        .await
        .expect("a line in time");
    assert!(
        told.starts_with(
            "worker-0: topologyManagerPolicy=single-numa-node topologyManagerScope=pod "
        ),
        "{told}"
    );
}

#[tokio::test]
async fn a_tool_ends_well_when_nobody_reads_on() {
    let server = Server::start().await.with_definitions().await;
    server
        .record(&[
            node("worker-0", &json!({})),
            topology("worker-0", &[4, 8], &[]),
        ])
        .await;
    for arguments in [&["nrt"][..], &["nrt", "--watch"], &["lsplatform"]] {
        let mut child = start(&server, arguments);
        drop(child.stdout.take());
        let ended = tokio::time::timeout(WITHIN, child.wait_with_output()).await;
        let ended = ended.expect("it ends").unwrap();
        let complaint = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            (ended.status.code(), complaint.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}
