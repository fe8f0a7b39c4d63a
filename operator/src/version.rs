//! Version and feature information of the program.

use serde_json::json;

/// Feature topics, in the order that consumers expect (operator.md 2).
const TOPICS: &str = "config nonreg hostlevel resacct cache stall schedrst rtetols overhead wlplacement unsched nonrt taint nodelabel byres \
                      tmpol schedattrwatch ngpoolname nganns metrics nrtcrdanns netpols introspection mgselinuxcollect tlscompliance preemption";

/// Version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `-version` prints after the program's name.
const BUILD: &str = goflags::build_line!();

/// Returns the output of `-version` (operator.md 2).
pub fn line(program: &str) -> String {
    format!("{program} {BUILD}")
}

/// Returns the commit of the build; `unknown` if the build did not set it.
pub fn commit() -> &'static str {
    option_env!("NUMARESOURCES_BUILD_COMMIT").unwrap_or("unknown")
}

/// Returns the branch of the build; `devel` if the build did not set it.
pub fn branch() -> &'static str {
    option_env!("NUMARESOURCES_BUILD_BRANCH").unwrap_or("devel")
}

/// Returns the output of `-inspect-features`.
pub fn features() -> String {
    let active: Vec<&str> = TOPICS.split_whitespace().collect();
    json!({"metadata": {"version": VERSION}, "active": active}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_one_line_of_known_topics() {
        let text = features();
        assert_eq!(text.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["active"].as_array().unwrap().len(), 26);
        assert_eq!(value["active"][0], "config");
    }
}
