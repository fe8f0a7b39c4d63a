//! What an exporter says of the pods that it has seen: its dump of fingerprints, a file in its container (rte.md 6.4).

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::Value;

use super::exporters;
use crate::context::Context;
use crate::context::checks::node_of;
use crate::context::probe::Output;
use crate::recorder::PollResult;
use crate::step::StepError;

impl Context {
    /// Runs a command in the exporter's container of a pod until it ends.
    pub async fn exec_in_exporter(&self, pod: &Pod, command: &[&str]) -> Result<Output, StepError> {
        let container = pod.spec.as_ref().and_then(exporters::container);
        let container = container.ok_or_else(|| {
            StepError::fail(format!("no container of {} is an exporter", pod.name_any()))
        })?;
        self.exec(pod, &container.name, command).await
    }

    /// Waits until the last scan of an exporter found this pod of the scenario, or did not find it. The pod has to hold CPUs of its own, so
    /// that every kind of fingerprint covers it.
    ///
    /// The exporter publishes a scan before it begins the next one. So whoever has seen that the pod was found, and later that it was not,
    /// has given it the time to publish that it was.
    pub async fn last_scan_has(
        &self,
        exporter: &Pod,
        pod: &str,
        expected: bool,
    ) -> Result<(), StepError> {
        let node = node_of(exporter).unwrap_or_default();
        let has = if expected { "has" } else { "does not have" };
        let what = format!("the last scan of {node} {has} the pod {pod}");
        self.until(&what, self.deadlines().settled, async || {
            let text = match self.dump(exporter, node).await? {
                Ok(text) => text,
                Err(problem) => return Ok(PollResult::NotYet(problem)),
            };
            Ok(match last_scan(&text) {
                Ok(pods)
                    if pods.contains(&(self.namespace.clone(), pod.to_owned())) == expected =>
                {
                    PollResult::Ready(())
                }
                Ok(pods) => PollResult::NotYet(format!("it has {pods:?}")),
                Err(flaw) => PollResult::NotYet(format!("the dump {flaw}: {text}")),
            })
        })
        .await
    }

    /// Reads the dump of an exporter. Older exporters write one record to `dump.json`; current ones write a list to a file with the node's
    /// name.
    async fn dump(&self, exporter: &Pod, node: &str) -> Result<Result<String, String>, StepError> {
        let directory = api::names::PFP_STATUS_DIR;
        let mut problem = String::new();
        for name in [node.replace('.', "_"), "dump.json".to_owned()] {
            let file = format!("{directory}/{name}");
            let output = self
                .exec_in_exporter(exporter, &["/bin/cat", &file])
                .await?;
            if output.succeeded {
                return Ok(Ok(output.stdout));
            }
            problem = output.stderr;
        }
        Ok(Err(problem))
    }
}

/// Returns namespaces and names of the pods in the last record of a dump, or what is wrong with it.
fn last_scan(text: &str) -> Result<Vec<(String, String)>, String> {
    let dump: Value =
        serde_json::from_str(text).map_err(|error| format!("is no JSON ({error})"))?;
    let record = match &dump {
        Value::Array(records) => records.last().ok_or("has no record")?,
        record => record,
    };
    if record["fingerprintComputed"]
        .as_str()
        .is_none_or(str::is_empty)
    {
        return Err("has no fingerprint".to_owned());
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = record["pods"].as_array().into_iter().flatten();
    Ok(pods
        .map(|pod| (word(&pod["Namespace"]), word(&pod["Name"])))
        .collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list(
        r#"[{"pods": []}, {"fingerprintComputed": "pfp0v001x", "pods": [{"Namespace": "n", "Name": "p"}]}]"#,
        Ok(1)
    )]
    #[case::former(
        r#"{"fingerprintComputed": "pfp0v001x", "pods": [{"Namespace": "n", "Name": "p"}]}"#,
        Ok(1)
    )]
    #[case::without_pods(r#"[{"fingerprintComputed": "pfp0v001x"}]"#, Ok(0))]
    #[case::no_fingerprint(
        r#"{"fingerprintComputed": "", "pods": [{"Namespace": "n", "Name": "p"}]}"#,
        Err("has no fingerprint")
    )]
    #[case::empty("[]", Err("has no record"))]
    fn the_last_record_counts(#[case] text: &str, #[case] expected: Result<usize, &str>) {
        let pod = ("n".to_owned(), "p".to_owned());
        let expected = expected
            .map(|count| vec![pod; count])
            .map_err(str::to_owned);
        assert_eq!(last_scan(text), expected);
    }

    #[test]
    fn half_a_dump_is_no_dump() {
        assert!(last_scan("[{").is_err_and(|flaw| flaw.starts_with("is no JSON")));
    }
}
