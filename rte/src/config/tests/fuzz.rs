//! Files that a hostile administrator would write.

use serde_json::json;

use super::Home;

#[test]
fn no_configuration_stops_the_exporter() {
    let daemon = json!({
        "global": {"debug": true, "kubeConfig": "k"},
        "nrtUpdater": {"noPublish": true, "oneShot": true, "hostname": "h", "patchMode": true, "patchResync": 10},
        "resourceMonitor": {"namespace": "n", "sysfsRoot": "/sys", "refreshNodeResources": true, "podSetFingerprint": true, "exposeTiming": true},
        "topologyExporter": {"podResourcesSocketPath": "unix:///s", "sleepInterval": "10s", "notifyFilePath": "/n", "maxEventsPerTimeUnit": 1, "timeUnitToLimitEvents": "1s", "metricsPort": 2112, "podReadinessEnable": true, "referenceContainer": {"namespace": "a", "podName": "b", "containerName": "c"}, "metricsMode": "http"},
    });
    let extra = json!({
        "resourceExclude": {"*": ["memory"], "node": ["cpu"]}, "podExclude": [{"namespacePattern": "a*", "namePattern": "[a-b]?"}],
        "kubelet": {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}, "topologyManagerScope": "pod",
    });
    let (home, files) = (Home::new(), ["daemon/config.yaml", "extra/config.yaml"]);
    ::fuzz::run(file!(), |input| {
        for (file, seed) in files.iter().zip([&daemon, &extra]) {
            let mut changed = seed.clone();
            ::fuzz::mutate::document(&mut changed, input)?;
            home.write(file, &::fuzz::mutate::text(&changed.to_string(), input)?);
        }
        // a refusal is as good as a configuration
        drop(home.load("", &[]));
        Ok(())
    });
}
