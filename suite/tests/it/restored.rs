//! What a scenario changes has no part in the verdict of the next one.

use suite::scenarios;
use suite::setup::Options;
use testbed::lane::Lane;

use crate::harness::{begin, describe, report_paths, runtime, start};

#[test]
fn an_operator_that_a_scenario_configures_is_as_before_in_the_next_one() {
    runtime().block_on(async {
        let options = Options::own(Lane::Embedded, &[]).expect("no flag is wrong");
        let paths = report_paths("restored", &options);
        let stream = begin(&options, &paths);
        let session = start(&options, &stream, &paths).await;
        let scenarios = scenarios::all();
        let mut verdicts = Vec::new();
        // the first lets the operator run any image, the second has it refuse one
        for id in [
            "install/unrestricted-exporter",
            "install/reject-custom-exporter",
        ] {
            let mut all = scenarios.iter();
            let scenario = all.find(|scenario| scenario.id == id);
            let scenario = scenario.expect("the catalogue has it");
            verdicts.push(describe(&session.run(scenario).await));
        }
        assert!(session.finish().await, "the tear-down works");
        assert_eq!(verdicts, ["passed", "passed"]);
    });
}
