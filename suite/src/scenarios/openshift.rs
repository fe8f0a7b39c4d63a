//! Release-blocking scenarios that the catalogue gives the label `openshift`: they read the machine config pools in the operator's
//! status (scenarios-serial.md 9.1 and 9.2). On plain Kubernetes each is skipped, by id, for that reason.

use crate::scenario::{Need, Scenario, Stop, body};
use crate::scenarios::{labels, title};

struct Row {
    id: &'static str,
    test_id: u32,
    labels: &'static str,
    table: &'static str,
    text: &'static str,
}

const CACHE: &[&str] = &[
    "tier0",
    "scheduler",
    "cache",
    "feature:cache",
    "periodic_update",
    "openshift",
    "podburst",
];
const STALL: &[&str] = &[
    "scheduler",
    "cache",
    "stall",
    "feature:cache",
    "feature:stall",
    "periodic_update",
    "openshift",
    "tier0",
];
const NO_STALLS: &str = "[serial][scheduler][cache] scheduler cache stall should be able to schedule pods with no stalls";

static CACHE_ROWS: &[Row] = &[
    Row {
        id: "cache/overreserve-corrected",
        test_id: 85786,
        labels: "",
        table: "scheduler cache",
        text: "should keep possibly-fitting pod in pending state until overreserve is corrected by update",
    },
    Row {
        id: "cache/interference-gu",
        test_id: 85787,
        labels: "qos:gu",
        table: INTERFERENCE,
        text: "from GU pods, low",
    },
    Row {
        id: "cache/interference-bu",
        test_id: 85788,
        labels: "qos:bu",
        table: INTERFERENCE,
        text: "from BU pods, moderate",
    },
    Row {
        id: "cache/non-fitting-stays-pending",
        test_id: 85789,
        labels: "",
        table: "scheduler cache",
        text: "should keep non-fitting pod in pending state forever",
    },
    Row {
        id: "cache/unblocked-on-delete",
        test_id: 85790,
        labels: "",
        table: "scheduler cache",
        text: "should unblock non-fitting pod in pending state when resources are freed (pod deleted)",
    },
];

const INTERFERENCE: &str = "scheduler cache should keep possibly-fitting pod in pending state until overreserve is corrected by \
    update handling interference";

static STALL_ROWS: &[Row] = &[
    Row {
        id: "stall/job-bu",
        test_id: 85781,
        labels: "job generic",
        table: NO_STALLS,
        text: "vs burstable pods",
    },
    Row {
        id: "stall/job-gu-mem-cpu",
        test_id: 85783,
        labels: "job generic",
        table: NO_STALLS,
        text: "vs guaranteed pods with pinnable memory and CPU",
    },
    Row {
        id: "stall/job-burst-gu",
        test_id: 85784,
        labels: "job generic nodeAll",
        table: NO_STALLS,
        text: "should handle a burst of qos=guaranteed pods",
    },
    Row {
        id: "stall/job-burst-bu",
        test_id: 85785,
        labels: "job generic nodeAll",
        table: NO_STALLS,
        text: "should handle a burst of qos=burstable pods",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let make = |common: &'static [&'static str]| {
        move |row: &'static Row| Scenario {
            id: row.id,
            test_id: Some(row.test_id),
            title: title(row.table, Some(row.test_id), "", row.text),
            labels: labels(common, row.labels),
            needs: vec![Need::OpenShift],
            body: body(|_| {
                Box::pin(async {
                    Err(Stop::Skip(
                        "this suite has no steps for it on OpenShift yet".to_owned(),
                    ))
                })
            }),
        }
    };
    CACHE_ROWS
        .iter()
        .map(make(CACHE))
        .chain(STALL_ROWS.iter().map(make(STALL)))
        .collect()
}
