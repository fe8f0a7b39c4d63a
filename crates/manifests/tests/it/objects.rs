//! Compares all objects of an installation with the reviewed ones, and the permissions with each other.

use api::operator::v1::NodeGroupConfig;
use manifests::platform::Platform;
use manifests::{operator, rte, scheduler, to_value};
use rstest::rstest;

use crate::exporters::{options, pool};
use crate::scheduler::scheduler_options;

/// Checks that the objects contain nothing beyond what the tests above name. After an intended change run
/// `INSTA_UPDATE=always cargo test -p manifests`.
#[rstest]
#[case::kubernetes(Platform::Kubernetes)]
#[case::openshift(Platform::OpenShift)]
#[case::hypershift(Platform::HyperShift)]
fn installation_of_a_platform_is_as_it_was_reviewed(#[case] platform: Platform) {
    let operator = operator::Options {
        platform,
        ..operator::Options::default()
    };
    let pools = [pool(NodeGroupConfig::default())];
    let objects = [
        operator::Set::new(&operator).objects(),
        operator::network_policies("ns", &[6443])
            .iter()
            .map(to_value)
            .collect(),
        operator::monitoring::objects("ns"),
        rte::Set::new(&options(platform), &pools).objects(),
        scheduler::Set::new(&scheduler_options(platform))
            .unwrap()
            .objects(),
    ];
    insta::assert_yaml_snapshot!(format!("installation_{platform}"), objects.concat());
}

#[rstest]
#[case::kubernetes(Platform::Kubernetes)]
#[case::openshift(Platform::OpenShift)]
#[case::hypershift(Platform::HyperShift)]
fn operator_may_do_everything_that_it_grants(#[case] platform: Platform) {
    let cluster_wide = operator::rules::cluster_role(platform);
    for rule in rte::cluster_role_rules()
        .iter()
        .chain(&scheduler::rules::cluster_role(api::names::SCHEDULER_LEASE))
    {
        assert!(cluster_wide.contains(rule), "{rule:?}");
    }
    let namespaced = operator::rules::role();
    for rule in rte::role_rules()
        .iter()
        .chain(&scheduler::rules::leader_role(api::names::SCHEDULER_LEASE))
    {
        assert!(namespaced.contains(rule), "{rule:?}");
    }
}
