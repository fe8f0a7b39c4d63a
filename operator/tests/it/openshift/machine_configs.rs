//! Machine configurations that are there before the operator.

use api::openshift::machine_config::MachineConfig;
use cluster_faults::{Fault, Rule, Selector};
use cluster_spec::flavour::Flavour;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::{CUSTOM_POLICY, MACHINE_CONFIG_A, OpenShift};
use crate::cluster::its;

const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The machine configuration of a pool whose machines have the legacy policy.
struct Configured {
    openshift: OpenShift,
    configs: Api<MachineConfig>,
    /// What the operator made.
    ours: MachineConfig,
}

impl Configured {
    async fn start() -> Self {
        let custom = json!({"nodeGroups": [
            {"poolName": "numa-a", "annotations": {CUSTOM_POLICY: "custom"}},
        ]});
        let openshift = OpenShift::start(Flavour::Openshift, &custom).await;
        let configs: Api<MachineConfig> = Api::all(openshift.cluster.client.clone());
        let ours = openshift.cluster.appears(&configs, MACHINE_CONFIG_A).await;
        Self {
            openshift,
            configs,
            ours,
        }
    }

    async fn change(&self, patch: Value) {
        let params = PatchParams::default();
        self.configs
            .patch(MACHINE_CONFIG_A, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits until the operator has put its label back, which shows that it has looked at the object.
    async fn is_labelled(&self) -> MachineConfig {
        let labelled = self.openshift.cluster.eventually(|| async {
            let live = self.configs.get(MACHINE_CONFIG_A).await.unwrap();
            if live.labels().contains_key(ROLE) {
                Ok(live)
            } else {
                Err(format!("{:?}", live.metadata))
            }
        });
        labelled.await
    }
}

/// Units of another program that install the policy.
fn other_units() -> Value {
    json!([{"name": "rte-selinux-policy-install.service", "enabled": true,
        "contents": "[Service]\nExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil\n"}])
}

/// Each change of it would restart all machines of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn machine_configuration_of_another_program_stays_while_its_policy_suffices() {
    let pool = Configured::start().await;
    let units = other_units();
    pool.change(json!({"metadata": {"labels": {ROLE: null}}, "spec": {"config": {"systemd": {"units": units}}}})).await;
    let seen = pool.is_labelled().await;
    assert_eq!(seen.spec.config["systemd"]["units"], units);
    assert_eq!(
        seen.spec.config["storage"],
        pool.ours.spec.config["storage"]
    );

    pool.change(json!({"spec": {"config": {"storage": {"files": []}}}}))
        .await;
    let repaired = pool.openshift.cluster.eventually(|| async {
        let live = pool.configs.get(MACHINE_CONFIG_A).await.unwrap();
        if live.spec == pool.ours.spec {
            Ok(())
        } else {
            Err(live.spec.config.to_string())
        }
    });
    repaired.await;
}

/// The operator reads, tries and writes: whichever of its requests is under way when the other program writes.
#[rstest]
#[case::the_first(1)]
#[case::the_second(2)]
#[case::the_third(3)]
#[tokio::test(flavor = "multi_thread")]
async fn machine_configuration_of_another_program_stays_that_comes_during_a_request(
    #[case] request: u64,
) {
    let pool = Configured::start().await;
    let cluster = &pool.openshift.cluster;
    // the pool has not installed it yet, and the operator waits for that
    pool.openshift
        .reports("Progressing", "Progressing", "numa-a is updating")
        .await;
    let faults = cluster.faults().await;
    let faults = faults.api().unwrap();
    let requests = Selector {
        resource: Some("machineconfigs".to_owned()),
        ..its(&["get", "update"])
    };
    let delay = Fault::Delay { milliseconds: 300 };
    let delayed = faults.add(Rule::new(requests, delay));
    pool.change(json!({"metadata": {"labels": {ROLE: null}}}))
        .await;
    faults.wait_for_hits(delayed, request).await;
    let units = other_units();
    pool.change(json!({"spec": {"config": {"systemd": {"units": units}}}}))
        .await;
    faults.remove(delayed);
    let seen = pool.is_labelled().await;
    assert_eq!(seen.spec.config["systemd"]["units"], units);
}
