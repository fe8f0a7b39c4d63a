use std::error::Error as _;

use rstest::rstest;

use super::*;
use crate::args::{ForeignPodsDetect, ScoringStrategyType};

mod fuzz;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

/// The operator's ConfigMap, rendered for the default custom resource (operator.md 5.4, 6.4).
const OPERATORS: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
  resourceName: numa-scheduler-leader
  resourceNamespace: numaresources
profiles:
- schedulerName: topo-aware-scheduler
  plugins:
    multiPoint:
      disabled:
      - name: DynamicResources
      enabled:
      - name: NodeResourceTopologyMatch
    filter:
      disabled:
      - name: '*'
      enabled:
      - name: NodeUnschedulable
      - name: NodeName
      - name: TaintToleration
      - name: NodeAffinity
      - name: NodePorts
      - name: KNIDebug
      - name: NodeResourcesFit
      - name: NodeResourceTopologyMatch
      - name: VolumeRestrictions
      - name: NodeVolumeLimits
      - name: VolumeBinding
      - name: VolumeZone
      - name: PodTopologySpread
      - name: InterPodAffinity
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      cacheResyncPeriodSeconds: 5
      cache:
        foreignPodsDetect: OnlyExclusiveResources
        informerMode: Dedicated
        resyncMethod: Autodetect
      scoringStrategy:
        type: LeastAllocated
";

/// The deployer's ConfigMap: an old version, the plugin at three points, empty arguments (scheduler.md 1.4).
const DEPLOYERS: &str = "
apiVersion: kubescheduler.config.k8s.io/v1beta3
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
profiles:
- schedulerName: topology-aware-scheduler
  plugins:
    filter:
      enabled:
      - name: NodeResourceTopologyMatch
    reserve:
      enabled:
      - name: NodeResourceTopologyMatch
    score:
      enabled:
      - name: NodeResourceTopologyMatch
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {}
";

fn message(text: &str) -> String {
    let error = parse(text).unwrap_err();
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn the_operators_configuration_is_read_as_it_is() {
    let configuration = parse(OPERATORS).unwrap();
    assert!(!configuration.leader_election.enabled);
    let profile = &configuration.profiles[0];
    assert_eq!(profile.scheduler_name, "topo-aware-scheduler");
    let filter: Vec<&str> = profile
        .at(Point::Filter)
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    assert_eq!(
        &filter[4..8],
        [
            "NodePorts",
            "KNIDebug",
            "NodeResourcesFit",
            "NodeResourceTopologyMatch"
        ]
    );
    let args = profile.topology_match.as_ref().unwrap();
    assert_eq!(args.cache_resync_period_seconds, 5);
    assert_eq!(
        args.cache.foreign_pods_detect,
        ForeignPodsDetect::OnlyExclusiveResources
    );
    assert_eq!(
        args.scoring_strategy.kind,
        ScoringStrategyType::LeastAllocated
    );
}

#[test]
fn the_deployers_configuration_is_read_as_it_is() {
    let configuration = parse(DEPLOYERS).unwrap();
    let profile = &configuration.profiles[0];
    assert_eq!(
        profile.at(Point::Filter).last().unwrap().name,
        "NodeResourceTopologyMatch"
    );
    assert_eq!(
        profile.topology_match,
        Some(NodeResourceTopologyMatchArgs::default())
    );
}

#[test]
fn an_empty_configuration_is_the_default_scheduler() {
    let configuration = parse(HEAD).unwrap();
    assert_eq!(configuration.parallelism, 16);
    assert_eq!(configuration.pod_initial_backoff, Duration::from_secs(1));
    assert_eq!(configuration.pod_max_backoff, Duration::from_secs(10));
    assert!(configuration.leader_election.enabled);
    assert_eq!(configuration.profiles.len(), 1);
    assert_eq!(
        configuration.profiles[0].scheduler_name,
        "default-scheduler"
    );
    assert_eq!(configuration.profiles[0].topology_match, None);
}

#[rstest]
#[case::absent("", Some(50.0), 100)]
#[case::zero("clientConnection: {qps: 0, burst: 0}", Some(50.0), 100)]
#[case::given(
    "clientConnection: {qps: 7.5, burst: 9, contentType: application/json}",
    Some(7.5),
    9
)]
#[case::unlimited("clientConnection: {qps: -1}", None, 100)]
fn the_client_is_limited_unless_told_otherwise(
    #[case] body: &str,
    #[case] qps: Option<f64>,
    #[case] burst: u32,
) {
    let connection = parse(&format!("{HEAD}{body}\n")).unwrap().client_connection;
    assert_eq!((connection.qps, connection.burst), (qps, burst));
}

#[rstest]
#[case::burst("clientConnection: {burst: -1}", "clientConnection.burst")]
#[case::content_type(
    "clientConnection: {contentType: text/xml}",
    "clientConnection.contentType"
)]
#[case::wrong_default_args(
    "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAfinity: {}}}]}]",
    "decoding args for plugin NodeAffinity"
)]
#[case::unknown_field("paralelism: 3", "unknown field `paralelism`")]
#[case::repeated_field("parallelism: 3\nparallelism: 4", "duplicate")]
#[case::unknown_nested_field(
    "leaderElection: {leaderElects: true}",
    "unknown field `leaderElects`"
)]
#[case::no_parallelism("parallelism: 0", "should be an integer value greater than zero")]
#[case::no_backoff("podInitialBackoffSeconds: 0", "must be greater than 0")]
#[case::backoff_order("podInitialBackoffSeconds: 20", "podMaxBackoffSeconds")]
#[case::percentage("percentageOfNodesToScore: 101", "not in valid range [0-100]")]
#[case::lease_order(
    "leaderElection: {leaseDuration: 5s}",
    "must be greater than renewDeadline"
)]
#[case::retry_order(
    "leaderElection: {renewDeadline: 2s}",
    "must be greater than 1.2 times retryPeriod"
)]
#[case::lock(
    "leaderElection: {resourceLock: endpoints}",
    "only \"leases\" is supported"
)]
#[case::bad_duration("leaderElection: {leaseDuration: soon}", "invalid duration \"soon\"")]
#[case::extender("extenders: [{urlPrefix: x}]", "extenders are not supported")]
#[case::same_name("profiles: [{schedulerName: a}, {schedulerName: a}]", "must be unique")]
#[case::no_name(
    "profiles: [{schedulerName: a}, {}]",
    "is required where there are several profiles"
)]
#[case::repeated_config(
    "profiles: [{pluginConfig: [{name: A}, {name: A}]}]",
    "repeated config for plugin A"
)]
#[case::unknown_plugin(
    "profiles: [{plugins: {filter: {enabled: [{name: NoSuch}]}}}]",
    "FilterPlugin \"NoSuch\" does not exist"
)]
#[case::unknown_plugin_at_an_idle_point(
    "profiles: [{plugins: {permit: {enabled: [{name: NoSuch}]}}}]",
    "PermitPlugin \"NoSuch\" does not exist"
)]
#[case::unsorted(
    "profiles: [{schedulerName: a, plugins: {queueSort: {disabled: [{name: '*'}]}}}]",
    "only one queue sort plugin required for profile with scheduler name \"a\", but got 0"
)]
#[case::unbound(
    "profiles: [{schedulerName: a, plugins: {multiPoint: {disabled: [{name: DefaultBinder}]}}}]",
    "at least one bind plugin is needed for profile with scheduler name \"a\""
)]
#[case::wrong_args(
    "profiles: [{pluginConfig: [{name: NodeResourceTopologyMatch, args: {preemptionMode: On}}]}]",
    "invalid PreemptionMode"
)]
fn a_wrong_configuration_is_refused_with_the_reason(#[case] body: &str, #[case] expected: &str) {
    let message = message(&format!("{HEAD}{body}\n"));
    assert!(message.contains(expected), "{message}");
}

#[rstest]
#[case("apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\n")]
#[case("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Deployment\n")]
#[case("apiVersion: v1\nkind: KubeSchedulerConfiguration\n")]
#[case("{}")]
fn another_type_is_refused(#[case] text: &str) {
    assert!(message(text).starts_with("no kind"), "{}", message(text));
}

/// A configuration that differs from the defaults nearly everywhere.
const ELABORATE: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 3
percentageOfNodesToScore: 40
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
clientConnection:
  kubeconfig: /etc/kubeconfig
  qps: -1
  burst: 7
leaderElection:
  leaseDuration: 1m0.5s
  resourceName: lock
profiles:
- schedulerName: one
  percentageOfNodesToScore: 5
  plugins:
    multiPoint:
      enabled:
      - name: NodeResourceTopologyMatch
        weight: 5
      disabled:
      - name: ImageLocality
    score:
      enabled:
      - name: NodeAffinity
        weight: 9
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      cacheResyncPeriodSeconds: 7
      discardReservedNodes: true
      preemptionMode: Enabled
      scoringStrategy:
        type: LeastNUMANodes
        resources:
        - name: vendor.io/nic
          weight: 3
      cache:
        informerMode: Shared
        resyncScope: OnlyResources
        resyncMethod: All
        foreignPodsDetect: None
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - key: a
              operator: Exists
  - name: NodeResourcesFit
    args:
      ignoredResources: [vendor.io/x]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources:
        - name: cpu
          weight: 2
        requestedToCapacityRatio:
          shape:
          - utilization: 0
            score: 0
          - utilization: 100
            score: 10
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - maxSkew: 1
        topologyKey: zone
        whenUnsatisfiable: ScheduleAnyway
  - name: DefaultPreemption
    args:
      minCandidateNodesAbsolute: 9
- schedulerName: two
  plugins:
    postFilter:
      disabled:
      - name: '*'
";

#[rstest]
#[case::default(HEAD)]
#[case::operators(OPERATORS)]
#[case::deployers(DEPLOYERS)]
#[case::elaborate(ELABORATE)]
fn what_is_written_out_says_the_same(#[case] text: &str) {
    let configuration = parse(text).unwrap();
    let document = configuration.document();
    assert_eq!(parse(&document.to_string()).unwrap(), configuration);
}
