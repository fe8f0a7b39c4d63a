//! Configurations that a hostile administrator would write.

use serde_json::json;

#[test]
fn no_scheduler_configuration_stops_its_reader_and_the_accepted_ones_are_read_again_alike() {
    let seed = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "parallelism": 16, "percentageOfNodesToScore": 50, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10,
        "clientConnection": {"kubeconfig": "k", "qps": 50, "burst": 100, "contentType": "application/json"},
        "leaderElection": {"leaderElect": true, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s", "resourceLock": "leases", "resourceName": "a", "resourceNamespace": "b"},
        "profiles": [{
            "schedulerName": "topo",
            "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch", "weight": 3}], "disabled": [{"name": "*"}]}, "queueSort": {"enabled": [{"name": "PrioritySort"}]}, "bind": {"enabled": [{"name": "DefaultBinder"}]}},
            "pluginConfig": [
                {"name": "NodeResourceTopologyMatch", "args": {"cacheResyncPeriodSeconds": 5, "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}, "cache": {"foreignPodsDetect": "All", "resyncMethod": "Autodetect", "informerMode": "Dedicated"}}},
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}},
                {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}},
            ],
        }],
    });
    ::fuzz::run(file!(), |input| {
        let mut changed = seed.clone();
        ::fuzz::mutate::document(&mut changed, input)?;
        let text = ::fuzz::mutate::text(&changed.to_string(), input)?;
        let Ok(read) = crate::parse(&text) else {
            return Ok(());
        };
        drop(crate::without_effect(&text));
        let written = read.document();
        let again = crate::parse(&written.to_string());
        let again =
            again.unwrap_or_else(|error| panic!("{text}\nis written as\n{written}\n{error}"));
        assert_eq!(again.document(), written, "{text}");
        Ok(())
    });
}
