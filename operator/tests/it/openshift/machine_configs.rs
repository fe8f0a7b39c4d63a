//! Machine configurations that are there before the operator.

use api::openshift::machine_config::MachineConfig;
use cluster_spec::flavour::Flavour;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{CUSTOM_POLICY, MACHINE_CONFIG_A, OpenShift};

/// Each change of it would restart all machines of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn machine_configuration_of_another_program_stays_while_its_policy_suffices() {
    const ROLE: &str = "machineconfiguration.openshift.io/role";
    let custom = json!({"nodeGroups": [
        {"poolName": "numa-a", "annotations": {CUSTOM_POLICY: "custom"}},
    ]});
    let openshift = OpenShift::start(Flavour::Openshift, &custom).await;
    let configs: Api<MachineConfig> = Api::all(openshift.cluster.client.clone());
    let ours = openshift.cluster.appears(&configs, MACHINE_CONFIG_A).await;
    let units = json!([{"name": "rte-selinux-policy-install.service", "enabled": true,
        "contents": "[Service]\nExecStart=/usr/sbin/semodule -i /etc/selinux/rte.cil\n"}]);
    let change = async |patch: Value| {
        let params = PatchParams::default();
        configs
            .patch(MACHINE_CONFIG_A, &params, &Patch::Merge(patch))
            .await
            .unwrap();
    };
    // the label comes back, which shows that the operator has looked at it
    change(json!({"metadata": {"labels": {ROLE: null}}, "spec": {"config": {"systemd": {"units": units}}}})).await;
    let seen = openshift.cluster.eventually(|| async {
        let live = configs.get(MACHINE_CONFIG_A).await.unwrap();
        if live.labels().contains_key(ROLE) {
            Ok(live)
        } else {
            Err(format!("{:?}", live.metadata))
        }
    });
    let seen = seen.await;
    assert_eq!(seen.spec.config["systemd"]["units"], units);
    assert_eq!(seen.spec.config["storage"], ours.spec.config["storage"]);

    change(json!({"spec": {"config": {"storage": {"files": []}}}})).await;
    let repaired = openshift.cluster.eventually(|| async {
        let live = configs.get(MACHINE_CONFIG_A).await.unwrap();
        if live.spec == ours.spec {
            Ok(())
        } else {
            Err(live.spec.config.to_string())
        }
    });
    repaired.await;
}
