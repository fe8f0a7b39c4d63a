//! Commands in containers and other streams, through the API server as clients use them.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, LogParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::harness::{self, TestNode, within};

/// Returns a setup with a running pod `p` whose container `c` sleeps and has a volume.
async fn setup_with_pod() -> TestNode {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "c", "command": ["/bin/sleep", "1000"],
                    "volumeMounts": [{"name": "v", "mountPath": "/run/v"}],
                }],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        }))
        .await;
    ready(&setup).await;
    setup
}

async fn ready(setup: &TestNode) {
    setup
        .until("p", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
}

/// Runs a command with optional input; returns standard output, standard error and exit code.
async fn exec(setup: &TestNode, command: &[&str], input: Option<&str>) -> (String, String, i32) {
    let params = AttachParams::default()
        .stdin(input.is_some())
        .stdout(true)
        .stderr(true);
    let pods = setup.pods();
    let mut process = pods.exec("p", command.to_vec(), &params).await.unwrap();
    if let Some(input) = input {
        let mut stdin = process.stdin().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        stdin.shutdown().await.unwrap();
    }
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let status = process.take_status().unwrap();
    let all = async {
        tokio::join!(
            stdout.read_to_string(&mut out),
            stderr.read_to_string(&mut err),
            status
        )
    };
    let (read, complained, status) = within("the command and its streams end", all).await;
    read.unwrap();
    complained.unwrap();
    let status = status.unwrap();
    let code = match status.status.as_deref() {
        Some("Success") => 0,
        _ => status
            .details
            .and_then(|details| details.causes?.into_iter().next()?.message?.parse().ok())
            .unwrap(),
    };
    (out, err, code)
}

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_in_a_container_with_its_files() {
    let setup = setup_with_pod().await;
    let touched = exec(&setup, &["touch", "/run/v/file"], None).await;
    assert_eq!(touched, (String::new(), String::new(), 0));
    let uid = setup.pods().get("p").await.unwrap().metadata.uid.unwrap();
    let file = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/v/file");
    let file = setup.node.host_path(std::path::Path::new(&file));
    fs_err::write(file, "what is in it\n").unwrap();
    let (out, err, code) = exec(&setup, &["/bin/cat", "/run/v/file"], None).await;
    assert_eq!(
        (out.as_str(), err.as_str(), code),
        ("what is in it\n", "", 0)
    );
    let (out, err, code) = exec(&setup, &["cat", "/run/v/none"], None).await;
    assert_eq!((out.as_str(), code), ("", 1));
    assert!(err.contains("No such file or directory"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_of_a_command_ends_when_the_client_says_so() {
    let setup = setup_with_pod().await;
    let (out, _, code) = exec(&setup, &["cat"], Some("one\ntwo\n")).await;
    assert_eq!((out.as_str(), code), ("one\ntwo\n", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_is_not_there_is_an_error_of_the_container() {
    let setup = setup_with_pod().await;
    let params = AttachParams::default().stderr(false);
    let pods = setup.pods();
    let mut process = pods.exec("p", ["no-such-program"], &params).await.unwrap();
    let status = within("its status is reported", process.take_status().unwrap()).await;
    let status = status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("InternalError"));
    let message = status.message.unwrap();
    let why = r#"exec: "no-such-program": executable file not found in $PATH"#;
    assert!(message.contains(why), "{message}");
    assert!(
        message.starts_with("Internal error occurred: error executing command in container: "),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_client_gives_input_and_sees_what_comes_from_then_on() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "command": ["/bin/cat"], "stdin": true, "stdinOnce": true}],
            },
        }))
        .await;
    ready(&setup).await;
    let params = AttachParams::default()
        .stdin(true)
        .stdout(true)
        .stderr(false);
    let mut process = setup.pods().attach("p", &params).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    stdin.write_all(b"hello\n").await.unwrap();
    let mut echoed = [0; 6];
    let mut stdout = process.stdout().unwrap();
    let echo = stdout.read_exact(&mut echoed);
    within("the input comes back", echo).await.unwrap();
    assert_eq!(&echoed, b"hello\n");
    stdin.shutdown().await.unwrap();
    setup
        .until("p", "succeeded", |pod| harness::phase(pod) == "Succeeded")
        .await;
    let log = setup.pods().logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(log, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_is_forwarded_to_the_port_of_a_pod() {
    let setup = setup_with_pod().await;
    let pod = setup.pods().get("p").await.unwrap();
    let address = pod.status.unwrap().pod_ip.unwrap();
    let listener = tokio::net::TcpListener::bind((address.as_str(), 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(b"pong").await.unwrap();
        asked
    });
    let mut forwarder = setup.pods().portforward("p", &[port]).await.unwrap();
    let mut stream = forwarder.take_stream(port).unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    let answered = stream.read_exact(&mut answer);
    within("the server answers", answered).await.unwrap();
    assert_eq!((&answer, &server.await.unwrap()), (b"pong", b"ping"));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_of_the_end_before_is_kept_and_what_has_none_says_so() {
    let setup = TestNode::up().await;
    setup
        .create(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "command": ["/bin/sleep", "x"]}]},
        }))
        .await;
    let pods = setup.pods();
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    let restarted = |pod: &Pod| harness::waiting(pod) == "CrashLoopBackOff";
    setup.until("p", "backs off", restarted).await;
    let words = "sleep: invalid time interval 'x'\n";
    assert_eq!(pods.logs("p", &previous).await.unwrap(), words);
    setup
        .create(json!({
            "metadata": {"name": "q"},
            "spec": {"containers": [{"name": "c", "command": ["/bin/sleep", "1000"]}]},
        }))
        .await;
    setup
        .until("q", "is ready", |pod| {
            harness::condition(pod, "Ready") == "True"
        })
        .await;
    let refusal = pods.logs("q", &previous).await.unwrap_err().to_string();
    let why = r#"previous terminated container "c" in pod "q" not found"#;
    assert!(refusal.contains(why), "{refusal}");
    setup
        .create(json!({
            "metadata": {"name": "r"},
            "spec": {"containers": [{"name": "c", "image": "localhost/other:1"}]},
        }))
        .await;
    let waits = |pod: &Pod| harness::waiting(pod) == "ImagePullBackOff";
    setup.until("r", "waits for its image", waits).await;
    let refusal = pods.logs("r", &LogParams::default()).await.unwrap_err();
    let why = r#"container "c" in pod "r" is waiting to start: trying and failing to pull image"#;
    assert!(refusal.to_string().contains(why), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn kubectl_runs_commands_and_reads_logs() {
    let setup = setup_with_pod().await;
    let (out, err, done) = setup
        .kubectl(&["exec", "p", "--", "touch", "/run/v/x"], "")
        .await;
    assert!(done, "{out}{err}");
    let (out, _, done) = setup
        .kubectl(&["exec", "-i", "p", "--", "cat"], "some input")
        .await;
    assert_eq!((out.as_str(), done), ("some input", true));
    let (_, err, done) = setup
        .kubectl(&["exec", "p", "--", "cat", "/run/v/y"], "")
        .await;
    assert!(!done && err.contains("No such file or directory"), "{err}");
    assert!(err.contains("command terminated with exit code 1"), "{err}");
    let (_, err, done) = setup
        .kubectl(&["exec", "p", "-c", "d", "--", "cat"], "")
        .await;
    assert!(!done && err.contains("container d"), "{err}");

    setup
        .create(json!({
            "metadata": {"name": "q"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "command": ["/bin/cat"], "stdin": true, "stdinOnce": true}],
            },
        }))
        .await;
    let running = |pod: &Pod| harness::condition(pod, "Ready") == "True";
    setup.until("q", "is ready", running).await;
    let attached = setup.kubectl(&["attach", "-i", "q"], "one\ntwo\nthree\n");
    let followed = setup.kubectl(&["logs", "--follow", "q"], "");
    let ((out, err, done), followed) = tokio::join!(attached, followed);
    assert_eq!((out.as_str(), done), ("one\ntwo\nthree\n", true), "{err}");
    assert_eq!(followed.0, "one\ntwo\nthree\n");
    let (out, _, _) = setup.kubectl(&["logs", "q", "--tail", "1"], "").await;
    assert_eq!(out, "three\n");
    let (out, _, _) = setup
        .kubectl(&["logs", "q", "--timestamps", "--limit-bytes=40"], "")
        .await;
    assert!(out.starts_with("20") && out.contains("Z one\n"), "{out}");
    let (out, _, _) = setup.kubectl(&["logs", "q", "--since=1h"], "").await;
    assert_eq!(out, "one\ntwo\nthree\n");
}
